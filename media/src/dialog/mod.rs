//! What the model is told: history, prompt, sentences, tools.

// Every setting of an agent, in the groups of the form. `kind` picks the control (controls.js), `unset`
// is what a new agent has. Names, ranges and meanings are the API's.

const flag = (name, label, unset, hint = null) => ({ name, kind: 'flag', label, unset, hint });
const text = (name, label, hint = null, more = {}) => ({ name, kind: 'text', label, hint, unset: null, ...more });
const long = (name, label, hint = null, more = {}) => ({ name, kind: 'long', label, hint, unset: null, wide: true, ...more });
const number = (name, label, [min, max, step], placeholder, hint = null) => ({ name, kind: 'number', label, min, max, step, placeholder, hint, unset: null });
const choice = (name, label, options, unset, hint = null) => ({ name, kind: 'choice', label, options, unset, hint });
const lines = (name, label, hint = null, more = {}) => ({ name, kind: 'lines', label, hint, unset: [], ...more });

export const GROUPS = [
  {
    id: 'who', title: 'Who it is', lead: 'What callers hear first, and what the agent knows.',
    fields: [
      text('name', 'Name', null, { required: true }),
      { name: 'voice_id', kind: 'voice', label: 'Voice', required: true, unset: '' },
      choice('language', 'Language', [['english', 'English'], ['french', 'French']], 'english'),
      text('dialect_style', 'Dialect style', 'For voices that have styles: formal, mixed, local.'),
      long('first_message', 'Greeting', 'Spoken as soon as the call is live. Without one, the agent waits for the caller.', { rows: 2 }),
      long('system_prompt', 'Prompt', 'Who the agent is, what it knows, how it speaks. {{name}} stands for a variable.', { rows: 12, required: true }),
      { name: 'dynamic_variables', kind: 'pairs', label: 'Variables', hint: 'What {{placeholders}} are filled with when a call brings nothing else.', unset: {}, wide: true },
    ],
  },
  {
    id: 'mind', title: 'Model and replies', lead: 'Which model answers, and how it is asked.',
    fields: [
      { name: 'llm_model', kind: 'model', label: 'Model', unset: '' },
      number('temperature', 'Temperature', [0, 2, 0.1], 'default', 'Ignored by reasoning models.'),
      number('max_tokens', 'Longest reply, tokens', [1, 8192, 1], '512'),
      number('max_context_tokens', 'Context, tokens', [1024, 262144, 1], 'default'),
      number('frequency_penalty', 'Frequency penalty', [-2, 2, 0.1], '0.4'),
      number('presence_penalty', 'Presence penalty', [-2, 2, 0.1], '0.9'),
      number('response_min_sentences', 'Fewest sentences', [0, null, 1], '2'),
      number('response_max_sentences', 'Most sentences', [0, null, 1], '3'),
      choice('history_truncation_enabled', 'Drop older turns', [['', 'Platform default'], ['true', 'Yes'], ['false', 'No']], null),
      number('history_max_turns', 'Turns that are kept', [1, 200, 1], '40'),
      choice('script_adherence', 'Follows the prompt', [['strict', 'Strictly'], ['medium', 'Mostly'], ['loose', 'Loosely']], 'strict'),
    ],
  },
  {
    id: 'turns', title: 'Taking turns', lead: 'When it speaks, when it lets itself be interrupted, what it does in silence.',
    fields: [
      choice('turn_eagerness', 'Eagerness', [['', 'Platform default'], ['patient', 'Patient'], ['normal', 'Normal'], ['eager', 'Eager']], null, 'How soon after the caller’s last word it answers.'),
      number('barge_in_min_speech_secs', 'Speech that interrupts, seconds', [0, 3, 0.1], '0.6', '0: at the first sound.'),
      flag('interruption_enabled', 'Callers may interrupt', true),
      flag('keypad_capture_enabled', 'Receives keypad digits', true, 'Exactly as they are pressed.'),
      number('idle_check_in_after_secs', 'Checks in after, seconds', [1, 600, 0.5], '15', 'Silence before it asks whether somebody is there.'),
      number('max_idle_attempts', 'Check-ins before goodbye', [0, null, 1], '0', '0: without end.'),
      number('soft_timeout_seconds', 'Filler line after, seconds', [1, 300, 0.5], 'never', 'Spoken while the model takes its time.'),
      text('soft_timeout_message', 'Filler line'),
      flag('soft_timeout_use_llm', 'The model words the filler line', false, 'Without effect yet.'),
    ],
  },
  {
    id: 'end', title: 'Ending a call',
    fields: [
      number('max_duration_seconds', 'Longest call, seconds', [30, 3600, 1], '1800'),
      number('silence_timeout_seconds', 'Ends after silence, seconds', [1, null, 1], 'never'),
      number('max_turns', 'Most turns of the caller', [1, 1000, 1], 'no cap', 'Hangs up when this turn begins.'),
      choice('end_call_behavior', 'How it notices the end', [['auto_detect', 'By itself'], ['phrases_only', 'By phrases only']], 'auto_detect'),
      flag('end_call_enabled', 'The agent may end the call', true),
      lines('end_call_phrases', 'Phrases that end the call', 'One a line.', { wide: true }),
    ],
  },
  {
    id: 'guard', title: 'Guardrails',
    fields: [
      flag('focus_guardrail_enabled', 'Stays on its subject', true),
      flag('content_guardrail_enabled', 'Keeps the content clean', false),
      { name: 'custom_guardrails', kind: 'guards', label: 'Your own', hint: 'Each a rule in words: “Never promise a date.”', unset: [], wide: true },
    ],
  },
  {
    id: 'access', title: 'Records and access', lead: 'What is kept of a call, and who may start one.',
    fields: [
      flag('recording_enabled', 'Keeps the sound of calls', true),
      flag('transcription_enabled', 'Keeps the words of calls', true),
      flag('public_access', 'Open to everybody', false, 'A page may start a call with only the agent’s id. Such calls are billed to you.'),
      lines('allowed_origins', 'Pages that may start public calls', 'One host name a line; none: any page.'),
    ],
  },
  {
    id: 'events', title: 'Events and metadata',
    fields: [
      text('webhook_url', 'Webhook', 'Receives signed events, call.ended first of all. HTTPS on port 443.', { wide: true, type: 'url', placeholder: 'https://…' }),
      { name: 'metadata', kind: 'json', label: 'Metadata', hint: 'A JSON object of your own, at most 16 KiB.', unset: {}, wide: true },
    ],
  },
  {
    id: 'knowledge', title: 'Knowledge base', lead: 'Kept for later: without effect yet.',
    fields: [
      number('rag_top_k', 'Passages for an answer', [1, 20, 1], '6'),
      number('rag_min_score', 'Lowest score of a passage', [0, 1, 0.05], '0.1', '0: no floor.'),
    ],
  },
  {
    id: 'phone', title: 'Telephone', lead: 'Voicemail, the lobby, and handing over to a person: kept for later. Only the trunk has an effect yet.',
    fields: [
      flag('voicemail_detection_enabled', 'Notices answering machines', false),
      choice('voicemail_action', 'At a machine', [['leave_message', 'Leave the message'], ['hangup', 'Hang up']], 'leave_message'),
      long('voicemail_message', 'Message for machines', null, { rows: 2 }),
      flag('inbound_lobby_enabled', 'Lobby before the agent picks up', false),
      choice('inbound_lobby_audio_preset', 'Sound of the lobby', [['none', 'None'], ['ambient', 'Ambient'], ['instrumental', 'Instrumental']], 'ambient'),
      text('inbound_lobby_message', 'Message of the lobby', 'Up to 120 characters.'),
      number('inbound_lobby_max_wait_seconds', 'Longest wait, seconds', [0, 60, 1], '45'),
      text('transfer_phone_number', 'Transfers to', null, { placeholder: '+15550100', type: 'tel' }),
      lines('transfer_phone_numbers', 'Transfers to, in order', 'Up to five numbers, one a line; they go before the single one.'),
      choice('transfer_mode', 'How it hands over', [['warm', 'Warm: tells the person first'], ['conference', 'Conference: stays, silent']], 'warm'),
      { name: 'outbound_trunk_id', kind: 'one', from: 'trunks', label: 'Outbound trunk', none: 'The default one', unset: null, hint: 'Where the number that calls has none of its own.' },
    ],
  },
  {
    id: 'text', title: 'Text messages', lead: 'Kept for later: without effect yet.',
    fields: [
      long('messaging_system_prompt', 'Prompt for text conversations', 'In place of the prompt above; calls never use it.', { rows: 4 }),
      lines('sms_message_ids', 'Messages it may send', 'Ids, one a line; none: every active message.'),
      number('sms_max_sends_per_message', 'Most sends of one message', [1, 30, 1], '2'),
      text('sms_sender_number_id', 'Sender', 'Id of a number; empty: the default sender.'),
    ],
  },
];

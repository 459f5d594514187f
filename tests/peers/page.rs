//! What tests of more than one browser ask of it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::devtools::Browser;
use super::firefox::Firefox;

/// A browser with one page.
pub(crate) trait Page {
    async fn goto(&mut self, url: &str);

    /// The value of an expression in the page, as if a person's action had run it.
    async fn eval(&mut self, expression: &str) -> Value;

    /// Exceptions, console errors and refused loads of the page so far.
    fn troubles(&self) -> &[String];

    /// Waits until the expression holds. On the way out of patience, tells what the page shows.
    async fn until(&mut self, expression: &str, seconds: u64) {
        let patience = Instant::now() + Duration::from_secs(seconds);
        while self.eval(&format!("Boolean({expression})")).await != true {
            if Instant::now() > patience {
                let shown = self.eval("document.body.innerText").await;
                let seen = self.eval("typeof seen === 'undefined' ? null : seen").await;
                panic!(
                    "{expression} did not come true in {seconds} s.\n{shown}\n{seen}\n{:?}",
                    self.troubles()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Page for Browser {
    async fn goto(&mut self, url: &str) {
        Self::goto(self, url).await;
    }

    async fn eval(&mut self, expression: &str) -> Value {
        Self::eval(self, expression).await
    }

    fn troubles(&self) -> &[String] {
        &self.troubles
    }
}

impl Page for Firefox {
    async fn goto(&mut self, url: &str) {
        Self::goto(self, url).await;
    }

    async fn eval(&mut self, expression: &str) -> Value {
        Self::eval(self, expression).await
    }

    fn troubles(&self) -> &[String] {
        &self.troubles
    }
}

//! The reference implementation, a Python process that is asked in batches of JSON requests.
//!
//! What a request and its answer hold is described in `tests/reference/serve.py`. `GRIFO_PYTHON` names another Python.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A running reference; dropping it ends its process, and so does the end of this one, which closes its input.
#[derive(Debug)]
pub struct Reference {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Reference {
    /// Starts it, with no state.
    ///
    /// # Panics
    /// When there is no Python.
    pub fn start() -> Self {
        let python = env::var_os("GRIFO_PYTHON").unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/serve.py");
        let mut child = Command::new(&python)
            .arg("-B")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", python.display()));
        let input = child.stdin.take().expect("its input is piped");
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        Self { child, input, output }
    }

    /// Asks several requests in one message; the answers come in the same order.
    ///
    /// # Panics
    /// When the process ended or its answer cannot be read. An answer that tells of a wrong request is an answer.
    pub fn call(&mut self, requests: &[Value]) -> Vec<Value> {
        let answer = self.line(&json!({ "batch": requests }));
        let answers = answer["batch"].as_array().unwrap_or_else(|| panic!("the reference answered {answer}"));
        assert_eq!(answers.len(), requests.len(), "the reference answers every request");
        answers.clone()
    }

    /// Asks one request.
    ///
    /// # Panics
    /// As [`Reference::call`].
    pub fn call_one(&mut self, request: &Value) -> Value {
        self.line(request)
    }

    /// Clears all state.
    ///
    /// # Panics
    /// As [`Reference::call`].
    pub fn forget(&mut self) {
        self.line(&json!({ "op": "forget" }));
    }

    fn line(&mut self, request: &Value) -> Value {
        let mut line = String::new();
        writeln!(self.input, "{request}")
            .and_then(|()| self.input.flush())
            .and_then(|()| self.output.read_line(&mut line))
            .unwrap_or_else(|e| panic!("the reference ended: {e}"));
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("the reference answered {line:?}: {e}"))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: &str) -> Value {
        let call = json!({ "limiter": "api", "limits": "2/s", "key": "k", "amount": 1 });
        json!({ "op": op, "now": 1_700_000_000_000_000_u64, "calls": [call] })
    }

    #[test]
    fn a_batch_is_answered_in_order() {
        let mut reference = Reference::start();
        let answers = reference.call(&[request("check"), request("check"), request("check"), request("nonsense")]);
        let allowed: Vec<_> = answers[..3].iter().map(|a| a["results"][0]["allowed"].as_bool()).collect();
        assert_eq!(allowed, [Some(true), Some(true), Some(false)]);
        assert_eq!(answers[3]["error"], "BadRequest");
        reference.forget();
        assert_eq!(reference.call_one(&request("check"))["results"][0]["allowed"], true);
    }

    #[test]
    fn a_batch_larger_than_a_pipe_is_answered() {
        let requests = vec![request("check"); 5_000];
        assert_eq!(Reference::start().call(&requests).len(), 5_000);
    }
}

//! One request that somebody may or may not make.

use serde_json::{Value, json};
use testkit::kube::{Answer, Api};

#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) what: String,
    method: &'static str,
    path: String,
    body: Option<Value>,
}

impl Act {
    pub(crate) fn read(what: &str, path: &str) -> Act {
        Act { what: what.to_owned(), method: "GET", path: path.to_owned(), body: None }
    }

    pub(crate) fn create(what: &str, path: &str, body: Value) -> Act {
        Act { method: "POST", body: Some(body), ..Act::read(what, path) }
    }

    pub(crate) fn replace(what: &str, path: &str, body: Value) -> Act {
        Act { method: "PUT", body: Some(body), ..Act::read(what, path) }
    }

    pub(crate) fn merge(what: &str, path: &str, body: Value) -> Act {
        Act { method: "PATCH", body: Some(body), ..Act::read(what, path) }
    }

    pub(crate) fn delete(what: &str, path: &str) -> Act {
        Act { method: "DELETE", ..Act::read(what, path) }
    }

    /// With something to say about what depends on it.
    pub(crate) fn delete_and(what: &str, path: &str, dependents: &str) -> Act {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": dependents });
        Act { body: Some(options), ..Act::delete(what, path) }
    }

    pub(crate) fn send(&self, api: &Api) -> Answer {
        let answer = match (self.method, &self.body) {
            ("PATCH", Some(body)) => api.patch("merge", &self.path, body),
            (method, body) => api.request(method, &self.path, body.as_ref()),
        };
        answer.unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }

    /// Goes through every check of the server, and changes nothing.
    pub(crate) fn try_out(&self, api: &Api) -> Answer {
        let mut act = self.clone();
        match (&mut act.body, act.method) {
            // The server looks at one of the two.
            (Some(options), "DELETE") => options["dryRun"] = json!(["All"]),
            _ => act.path += "?dryRun=All",
        }
        act.send(api)
    }
}

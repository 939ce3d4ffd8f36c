//! One request that somebody may or may not make.

use serde_json::Value;
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

    pub(crate) fn send(&self, api: &Api) -> Answer {
        self.request(api, &self.path)
    }

    /// Goes through every check of the server, and changes nothing.
    pub(crate) fn try_out(&self, api: &Api) -> Answer {
        self.request(api, &format!("{}?dryRun=All", self.path))
    }

    fn request(&self, api: &Api, path: &str) -> Answer {
        let answer = match (self.method, &self.body) {
            ("PATCH", Some(body)) => api.patch("merge", path, body),
            (method, body) => api.request(method, path, body.as_ref()),
        };
        answer.unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }
}

//! A token in a file, which others replace while we run: that of a service account, or one that a kubeconfig names.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use http::HeaderValue;
use kube_client::config::AuthInfo;

use crate::StoreError;

/// How long a token is used before the file is read again. A token that is refused is read again at once.
const FRESH_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// For as long as there has been no file.
    instead: Option<HeaderValue>,
    read: Mutex<Option<Read>>,
}

#[derive(Debug)]
struct Read {
    at: Instant,
    is_doubtful: bool,
    header: HeaderValue,
}

impl TokenFile {
    /// The file that a kubeconfig names, for us to read: the library would notice a new token within a minute, and prefer the one that
    /// a kubeconfig may have beside the file.
    pub(super) fn take_from(user: &mut AuthInfo) -> Option<TokenFile> {
        let path = user.token_file.take().filter(|path| !path.is_empty())?;
        // The library shows a secret to nobody, but writes it into a kubeconfig.
        let whole = serde_json::to_value(&*user).unwrap_or_default();
        user.token = None;
        Some(TokenFile::new(PathBuf::from(path), whole["token"].as_str()))
    }

    /// `instead`: a token that the kubeconfig has beside the file. As for kubectl, the file comes first.
    fn new(path: PathBuf, instead: Option<&str>) -> TokenFile {
        TokenFile { path, instead: instead.and_then(|token| bearer(token).ok()), read: Mutex::new(None) }
    }

    /// The header that identifies us. A file that has become unreadable leaves the last token in use.
    pub(super) fn header(&self) -> Result<HeaderValue, StoreError> {
        let mut read = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(last) = read.as_ref().filter(|last| !last.is_doubtful && last.at.elapsed() < FRESH_FOR) {
            return Ok(last.header.clone());
        }
        let header = match (self.read_file(), read.as_ref()) {
            (Ok(header), _) => header,
            (Err(_), Some(last)) => last.header.clone(),
            (Err(error), None) => return self.instead.clone().ok_or(error),
        };
        *read = Some(Read { at: Instant::now(), is_doubtful: false, header: header.clone() });
        Ok(header)
    }

    /// Whether there is another token than the one that was refused.
    pub(super) fn has_changed_since(&self, refused: &HeaderValue) -> bool {
        if let Some(last) = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_mut() {
            last.is_doubtful = true;
        }
        self.header().is_ok_and(|header| header != refused)
    }

    fn read_file(&self) -> Result<HeaderValue, StoreError> {
        let unusable = |problem: String| StoreError::BadSetting {
            setting: format!("the token file {}", self.path.display()),
            problem,
        };
        let token = std::fs::read_to_string(&self.path)
            .map_err(|error| unusable(format!("cannot be read: {error}")))?;
        bearer(&token).map_err(|()| unusable("holds no token".to_owned()))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, ()> {
    let token = Some(token.trim()).filter(|token| !token.is_empty()).ok_or(())?;
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(drop)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_token_is_found_when_the_old_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let file = TokenFile::new(path.clone(), None);
        assert!(matches!(file.header(), Err(StoreError::BadSetting { .. })));
        std::fs::write(&path, "one\n").unwrap();
        let one = file.header().unwrap();
        assert_eq!(one, "Bearer one");
        assert!(!file.has_changed_since(&one));

        std::fs::write(&path, "two").unwrap();
        assert_eq!(file.header().unwrap(), "Bearer one", "a fresh one is not read again");
        assert!(file.has_changed_since(&one));
        assert_eq!(file.header().unwrap(), "Bearer two");

        std::fs::remove_file(&path).unwrap();
        assert!(!file.has_changed_since(&file.header().unwrap()), "there is no other");
    }

    #[test]
    fn a_file_comes_before_the_token_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let file = TokenFile::new(path.clone(), Some("beside"));
        assert_eq!(file.header().unwrap(), "Bearer beside");
        for (content, expected) in [("", "Bearer beside"), ("own", "Bearer own")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(file.header().unwrap(), expected);
        }
        assert!(TokenFile::new(directory.path().join("none"), Some("")).header().is_err());
    }
}

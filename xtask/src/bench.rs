//! `cargo xtask bench NAME [-o json]`: runs what measures NAME, each with a peer beside it, and shows the figures.
//!
//! A bench target prints one JSON object with a list `figures`; see the crates' `benches/` folders. A target
//! that is missed is shown, not punished: the exit code is 0.

use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{kubernetes, packages, workspace};

/// A measurement: which crate has it, and under which name.
struct Source {
    package: &'static str,
    bench: &'static str,
}

/// What can be measured today.
const BENCHES: &[(&str, &[Source])] = &[
    ("store", &[Source { package: "store", bench: "store" }, Source { package: "ctl", bench: "table" }]),
    ("ipam", &[Source { package: "book", bench: "ipam" }, Source { package: "ctl", bench: "ipam" }]),
    ("cni", &[Source { package: "lab", bench: "cni" }]),
    ("routes", &[Source { package: "lab", bench: "routes" }]),
    (
        "doctor",
        &[Source { package: "doctor", bench: "analysis" }, Source { package: "ctl", bench: "doctor" }],
    ),
    ("repair", &[Source { package: "ctl", bench: "repair" }]),
    ("kube", &[Source { package: "lab", bench: "kube" }, Source { package: "ctl", bench: "kube" }]),
];

pub(crate) fn run(args: &[String]) -> Result<bool> {
    let Wanted { name, as_json, is_quick } = parse(args)?;
    let sources = find(&name)?;
    packages::ensure(packages::FOR_TESTS)?;
    if name == "kube" {
        kubernetes::ensure()?;
    }
    let mut figures = Vec::new();
    for source in sources {
        figures.extend(measure(source, is_quick)?);
    }
    if as_json {
        println!("{}", json!({"bench": name, "figures": figures}));
    } else {
        print!("{}", table(&figures));
    }
    Ok(true)
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    as_json: bool,
    /// A trial: few of everything, for the benches that know the flag.
    is_quick: bool,
}

fn parse(args: &[String]) -> Result<Wanted> {
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let count = args.len();
    args.retain(|arg| *arg != "--quick");
    let is_quick = args.len() < count;
    let (name, as_json) = match args[..] {
        [name] | [name, "-o", "table"] if !name.starts_with('-') => (name, false),
        [name, "-o", "json"] | ["-o", "json", name] => (name, true),
        _ => bail!("usage: cargo xtask bench NAME [-o json] [--quick]; NAME is one of: {}", names()),
    };
    Ok(Wanted { name: name.to_owned(), as_json, is_quick })
}

fn names() -> String {
    BENCHES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn find(name: &str) -> Result<&'static [Source]> {
    match BENCHES.iter().find(|(known, _)| *known == name) {
        Some((_, sources)) => Ok(sources),
        None => bail!("there is no bench {name:?}; there are: {}", names()),
    }
}

/// Builds and runs one measurement. Progress goes to the terminal, figures come back.
fn measure(source: &Source, is_quick: bool) -> Result<Vec<Value>> {
    eprintln!("measuring: bench {} of {}, in its release build", source.bench, source.package);
    let output = workspace::cargo()
        .args(["bench", "--quiet", "--package", source.package, "--bench", source.bench, "--", "-o", "json"])
        .args(is_quick.then_some("--quick"))
        .env("PATH", workspace::search_path())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo bench")?;
    if !output.status.success() {
        bail!("the bench {} of {} failed", source.bench, source.package);
    }
    read_figures(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("the figures of the bench {} of {}", source.bench, source.package))
}

fn read_figures(stdout: &str) -> Result<Vec<Value>> {
    let json: Value =
        serde_json::from_str(stdout.trim()).context("not the one JSON object that was expected")?;
    let figures = json["figures"].as_array().context("no list of figures in it")?;
    for figure in figures {
        if !figure["name"].is_string() || !figure["value"].is_number() || !figure["unit"].is_string() {
            bail!("a figure without name, value or unit: {figure}");
        }
    }
    Ok(figures.clone())
}

const COLUMNS: [&str; 7] = ["name", "value", "unit", "peer", "ratio", "target", "met"];

fn table(figures: &[Value]) -> String {
    let mut rows = vec![COLUMNS.map(|name| name.to_uppercase())];
    rows.extend(figures.iter().map(|figure| COLUMNS.map(|name| cell(&figure[name]))));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(met) => if *met { "yes" } else { "NO" }.to_owned(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or_default())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_command_line_is_understood() {
        let wanted = |as_json, is_quick| Wanted { name: "kube".to_owned(), as_json, is_quick };
        assert_eq!(parse(&words("kube")).unwrap(), wanted(false, false));
        assert_eq!(parse(&words("kube -o json")).unwrap(), wanted(true, false));
        assert_eq!(parse(&words("--quick kube")).unwrap(), wanted(false, true));
        for wrong in ["", "-o json", "store -o xml", "store extra"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_those_there_are() {
        assert!(find("store").is_ok());
        assert!(find("stores").err().unwrap().to_string().contains("there are: store"));
    }

    #[test]
    fn figures_are_read_and_shown() {
        let text = r#"{"bench":"store","figures":[
            {"name":"watch p99","value":1.25,"unit":"ms","peer":"etcd 0.9","ratio":1.388888,"target":"<= 5","met":true},
            {"name":"insert","value":12,"unit":"us","peer":null,"ratio":null,"target":null,"met":false}]}"#;
        let shown = table(&read_figures(text).unwrap());
        assert_eq!(
            shown,
            "NAME       VALUE  UNIT  PEER      RATIO  TARGET  MET\n\
             watch p99  1.250  ms    etcd 0.9  1.389  <= 5    yes\n\
             insert     12     us    -         -      -       NO\n"
        );
        assert!(read_figures("{}").is_err());
        assert!(read_figures(r#"{"figures":[{"name":"x"}]}"#).is_err());
        assert!(read_figures("Finished\n{}").is_err());
    }
}

//! How Go's library spells what calicoctl prints.

use std::io;
use std::path::Path;

use serde_json::Value;

/// A number with `%v`: the shortest text, with an exponent from 1e+06 on and below 0.0001.
pub(crate) fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Why a file could not be opened, as Go says it.
pub(crate) fn open_error(path: &Path, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        _ => {
            let text = error.to_string();
            text.split_once(" (os error").map_or(text.clone(), |(text, _)| text.to_lowercase())
        }
    };
    format!("open {}: {why}", path.display())
}

/// A selector of labels as the Go type prints itself.
pub(crate) fn go_label_selector(selector: Option<&Value>) -> String {
    let part = |name: &str| selector.and_then(|selector| selector.get(name));
    let mut labels = String::new();
    for (key, value) in part("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        labels.push_str(&format!("{key}: {},", value.as_str().unwrap_or_default()));
    }
    let mut requirements = String::new();
    for item in part("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        let values = item.get("values").and_then(Value::as_array);
        let values: Vec<&str> = values.into_iter().flatten().filter_map(Value::as_str).collect();
        requirements.push_str(&format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            text("key"),
            text("operator"),
            values.join(" ")
        ));
    }
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelt_as_go_prints_them() {
        for (number, text) in [
            (0.0, "0"),
            (100.0, "100"),
            (-5.0, "-5"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (12_345_678.0, "1.2345678e+07"),
            (1_000_000.5, "1.0000005e+06"),
            (1e21, "1e+21"),
            (0.5, "0.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(go_float(number), text);
        }
    }
}

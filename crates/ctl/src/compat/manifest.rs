//! What calicoctl says about a manifest that it cannot read.

use model::manifest::ManifestError;

/// `of_kind` is the kind that the text names, if it names one.
pub(crate) fn manifest_error(error: &ManifestError, of_kind: &str) -> String {
    let why = match error {
        // calicoctl says this in the place of everything else.
        ManifestError::UnknownField { field, .. } => {
            let name = field.rsplit(['.', ']']).find(|part| !part.is_empty()).unwrap_or(field);
            return format!("field in document is not recognized or is in the wrong location: {name}");
        }
        ManifestError::UnknownKind { kind, version, .. } => unknown_kind(kind, version),
        ManifestError::ApiVersion { kind, found, .. } => unknown_kind(kind.name(), found),
        ManifestError::MissingApiVersion { kind, .. } => unknown_kind(kind.name(), ""),
        ManifestError::MissingKind { .. } | ManifestError::NotAResource { .. } => {
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal object into Go value of type \
             []unstructured.Unstructured"
                .to_owned()
        }
        ManifestError::Syntax { at, problem } | ManifestError::Excess { at, problem } => {
            format!("error converting YAML to JSON: yaml: line {}: {problem}", at.line)
        }
        ManifestError::DuplicateKey { at, field } => format!(
            "error converting YAML to JSON: yaml: unmarshal errors:\n  line {}: key {:?} already set in map",
            at.line,
            field.rsplit('.').next().unwrap_or(field)
        ),
        ManifestError::WrongType { field, found, expected, .. } => format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go struct field \
             {of_kind}Spec.{field} of type {}",
            json_type(found),
            go_type(expected)
        ),
        other => other.to_string(),
    };
    format!("failed to execute command: {why}")
}

fn unknown_kind(kind: &str, version: &str) -> String {
    format!("unknown resource type ({kind}) and/or version ({version})")
}

/// What JSON calls a value that a message shows.
fn json_type(found: &str) -> &'static str {
    match found {
        "a list" => "array",
        "a map" => "object",
        "true" | "false" => "bool",
        text if text.starts_with('"') => "string",
        text if text.parse::<f64>().is_ok() => "number",
        _ => "string",
    }
}

/// What Go calls the type of a field, as far as the message of ours tells it.
fn go_type(expected: &str) -> &'static str {
    match expected {
        "true or false" => "bool",
        "a string" => "string",
        "a list" => "[]string",
        "a whole number" => "int",
        "a number" => "float64",
        _ => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        manifest_error(&model::manifest::parse(text).unwrap_err(), "IPPool")
    }

    #[test]
    fn manifests_are_refused_in_the_words_of_calicoctl() {
        let pool = "apiVersion: projectcalico.org/v3\nkind: IPPool\n";
        assert_eq!(
            said(&format!("{pool}spec: {{sidr: 10.0.0.0/16}}")),
            "field in document is not recognized or is in the wrong location: sidr"
        );
        assert_eq!(
            said("apiVersion: projectcalico.org/v3\nkind: Pool"),
            "failed to execute command: unknown resource type (Pool) and/or version (projectcalico.org/v3)"
        );
        assert_eq!(
            said("apiVersion: v1\nkind: IPPool"),
            "failed to execute command: unknown resource type (IPPool) and/or version (v1)"
        );
        assert_eq!(
            said(&format!("{pool}spec: {{disabled: maybe}}")),
            "failed to execute command: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into \
             Go struct field IPPoolSpec.spec.disabled of type bool"
        );
    }
}

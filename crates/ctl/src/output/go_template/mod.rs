//! Go's text templates, as far as `calicoctl get -o go-template` needs them: fields by the names of Calico's Go types,
//! `range`, `if`, `with`, variables, pipelines, Go's own functions and calicoctl's `join`, `joinAndTruncate`, `config`.
//!
//! A template gets what calicoctl gives it: a list of what was asked for, whose items are resources, or one list of
//! resources if a whole kind was asked for.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod eval;
mod functions;
mod lex;
mod parse;
mod value;

use serde_json::Value;

use eval::Run;
use parse::Node;

/// Deeper templates are refused, so that walks over them stay on the stack.
const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Template(Vec<Node>);

/// What came out, up to the end or to what could not be done.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) text: String,
    pub(crate) problem: Option<String>,
}

impl Template {
    /// The error begins with the line.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        parse::parse(text).map(Template)
    }

    /// `as_number` is the AS number of nodes that have none of their own.
    pub(crate) fn fill(&self, documents: &[Value], as_number: &str) -> Filled {
        let mut run = Run::new(documents, as_number);
        let problem = run.nodes(&self.0).err();
        Filled { text: run.text, problem }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn documents() -> Vec<Value> {
        let pool = |name: &str, cidr: &str| {
            json!({"kind": "IPPool", "apiVersion": "projectcalico.org/v3",
                "metadata": {"name": name, "labels": {"team": "net", "env": "x"}},
                "spec": {"cidr": cidr, "blockSize": 26, "allowedUses": ["Workload", "Tunnel"]}})
        };
        vec![
            json!({"kind": "IPPoolList", "apiVersion": "projectcalico.org/v3", "metadata": {"resourceVersion": "7"},
            "items": [pool("a", "10.0.0.0/16"), pool("b", "10.1.0.0/16")]}),
        ]
    }

    fn filled(template: &str) -> String {
        let filled = Template::parse(template).unwrap().fill(&documents(), "64512");
        match filled.problem {
            None => filled.text,
            Some(problem) => format!("{}!{problem}", filled.text),
        }
    }

    #[test]
    fn resources_are_seen_by_the_names_of_go() {
        for (template, text) in [
            (
                "{{range .}}{{range .Items}}{{.ObjectMeta.Name}},{{.Spec.CIDR}}\n{{end}}{{end}}",
                "a,10.0.0.0/16\nb,10.1.0.0/16\n",
            ),
            (
                "{{range .}}{{range .Items}}{{.Name}} {{.Kind}} {{.Spec.NATOutgoing}} {{.Spec.BlockSize}};{{end}}{{end}}",
                "a IPPool false 26;b IPPool false 26;",
            ),
            (
                "{{range .}}{{range .Items}}{{join .Spec.AllowedUses \"+\"}} {{len .Spec.AllowedUses}} {{end}}{{end}}",
                "Workload+Tunnel 2 Workload+Tunnel 2 ",
            ),
            (
                "{{range .}}{{range .Items}}{{joinAndTruncate .Spec.AllowedUses \",\" 12}}|{{end}}{{end}}",
                "Workload,...|Workload,...|",
            ),
            ("{{range .}}{{range $i, $p := .Items}}{{$i}}={{$p.Name}} {{end}}{{end}}", "0=a 1=b "),
            ("{{range .}}{{(index .Items 1).Name}}{{end}}", "b"),
            ("{{range .}}{{range .Items}}{{.Labels}}{{break}}{{end}}{{end}}", "map[env:x team:net]"),
            (
                "{{range .}}{{range .Items}}{{index .Labels \"team\"}} {{.Spec.AssignmentMode}};{{end}}{{end}}",
                "net <nil>;net <nil>;",
            ),
            ("{{range .}}{{.ListMeta.ResourceVersion}}{{end}}", "7"),
            ("{{config \"asnumber\"}}", "64512"),
        ] {
            assert_eq!(filled(template), text, "{template}");
        }
    }

    #[test]
    fn the_language_is_gos() {
        for (template, text) in [
            ("a {{- /* gone */ -}} b", "ab"),
            ("{{if false}}x{{else if eq 1 2}}y{{else}}z{{end}}", "z"),
            ("{{with $x := \"v\"}}{{$x}}{{.}}{{else}}none{{end}}{{with \"\"}}x{{else}}none{{end}}", "vvnone"),
            ("{{$n := 1}}{{range .}}{{$n = 2}}{{end}}{{$n}}", "2"),
            (
                "{{\"a\" | printf \"%s-%s\" \"b\"}} {{printf \"%-4s|%4d|%q|%v\" \"x\" 7 \"y\" true}}",
                "b-a x   |   7|\"y\"|true",
            ),
            ("{{print 1 2 \"x\" \"y\" 3}} {{println \"a\" 1}}", "1 2xy3 a 1\n"),
            (
                "{{and 1 0}} {{or 0 \"x\"}} {{not 1}} {{eq 1 2 1}} {{ne \"a\" \"b\"}} {{lt 1 2}} {{ge 2.5 2.5}}",
                "0 x false true true true true",
            ),
            ("{{`raw \\n`}}{{'a'}} {{1000000.0}} {{nil | print}}", "raw \\n97 1e+06 <nil>"),
            (
                "{{range $x := .}}{{continue}}never{{end}}{{range .Nothing}}{{end}}",
                "!can't evaluate field Nothing in type []runtime.Object",
            ),
            ("x{{.Foo}}", "x!can't evaluate field Foo in type []runtime.Object"),
            ("{{range .}}{{.Foo}}{{end}}", "!can't evaluate field Foo in type *v3.IPPoolList"),
        ] {
            assert_eq!(filled(template), text, "{template}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (template, problem) in [
            ("a\n{{.Foo", "2: unclosed action"),
            ("{{end}}", "1: unexpected {{end}}"),
            ("{{range .}}x", "1: unexpected EOF"),
            ("{{foo 1}}", "1: function \"foo\" not defined"),
            ("{{$x}}", "1: undefined variable \"$x\""),
            ("{{\"a}}", "1: unterminated quoted string"),
            ("{{}}", "1: missing value for command"),
        ] {
            assert_eq!(Template::parse(template).unwrap_err(), problem, "{template}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_typed_panics(text in "[{}. $:=|()\"`a-cA-C0-9\n-]{0,40}", inner in "[. $|()\"a-zA-Z0-9 -]{0,30}") {
            for template in [text, format!("{{{{{inner}}}}}"), format!("{{{{range .}}}}{{{{{inner}}}}}{{{{end}}}}")] {
                if let Ok(template) = Template::parse(&template) {
                    let _ = template.fill(&documents(), "1");
                }
            }
        }
    }
}

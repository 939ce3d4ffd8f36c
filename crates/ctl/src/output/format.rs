//! What `-o` can ask for.

use std::path::Path;

use jsonpath_rust::parser::model::JpQuery;

use super::document::Syntax;
use super::go_template;
use super::jsonpath::{self, Template};
use crate::compat;
use crate::failure::Failure;

#[derive(Debug)]
pub(crate) enum Format {
    Table(Choice),
    Document(Syntax),
    Name,
    Template(Template),
    GoTemplate(go_template::Template),
}

/// Which columns a table has.
#[derive(Debug)]
pub(crate) enum Choice {
    Narrow,
    Wide,
    Custom(Vec<Custom>),
}

#[derive(Debug)]
pub(crate) enum Custom {
    /// One of the kind's own columns.
    Heading(String),
    /// kubectl's form, `HEADING:.path.to.field`.
    Path { heading: String, query: JpQuery },
}

const FORMATS: &str = "use one of ps, wide, yaml, json, name, custom-columns=A,B, jsonpath=TEMPLATE, \
     go-template=TEMPLATE, go-template-file=FILE";

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Format, Failure> {
        match text.split_once('=').unwrap_or((text, "")) {
            ("ps", "") => Ok(Format::Table(Choice::Narrow)),
            ("wide", "") => Ok(Format::Table(Choice::Wide)),
            ("yaml" | "yml", "") => Ok(Format::Document(Syntax::Yaml)),
            ("json", "") => Ok(Format::Document(Syntax::Json)),
            ("name", "") => Ok(Format::Name),
            ("custom-columns", "") => Err(Failure::usage("custom-columns needs at least one column")
                .in_calicoctl("need to specify at least one column")
                .hint("write -o custom-columns=NAME,CIDR, or NAME:.metadata.name for any field")),
            ("custom-columns", columns) => {
                let columns = columns.split(',').map(custom).collect::<Result<_, _>>()?;
                Ok(Format::Table(Choice::Custom(columns)))
            }
            ("jsonpath", "") => Err(Failure::usage("jsonpath needs a template")
                .hint("write -o 'jsonpath={.items[*].metadata.name}'")),
            ("jsonpath", template) => {
                let template = Template::parse(template)
                    .map_err(|problem| Failure::usage(format!("jsonpath: {problem}")))?;
                Ok(Format::Template(template))
            }
            ("go-template", "") => Err(Failure::usage("need to specify a template").hint(
                "write -o 'go-template={{range .}}{{range .Items}}{{.Name}}{{\"\\n\"}}{{end}}{{end}}'",
            )),
            ("go-template", template) => go_template(template),
            ("go-template-file", "") => {
                Err(Failure::usage("need to specify a template file").hint("write -o go-template-file=FILE"))
            }
            ("go-template-file", file) => {
                let template = std::fs::read_to_string(file).map_err(|error| {
                    Failure::usage(format!("cannot read {file}"))
                        .caused_by(&error)
                        .in_calicoctl(compat::open_error(Path::new(file), &error))
                })?;
                go_template(&template)
            }
            _ => Err(Failure::usage(format!("unrecognized output format '{text}'")).hint(FORMATS)),
        }
    }
}

fn go_template(text: &str) -> Result<Format, Failure> {
    go_template::Template::parse(text).map(Format::GoTemplate).map_err(|problem| {
        Failure::usage(format!("go-template: {problem}")).in_calicoctl(format!("template: get:{problem}"))
    })
}

fn custom(column: &str) -> Result<Custom, Failure> {
    match column.split_once(':') {
        None if compat::is_strict() => Ok(Custom::Heading(column.to_owned())),
        None => Ok(Custom::Heading(column.trim().to_ascii_uppercase())),
        Some((heading, path)) => {
            let query = jsonpath::path(path)
                .map_err(|problem| Failure::usage(format!("custom column {heading}: {problem}")))?;
            Ok(Custom::Path { heading: heading.to_owned(), query })
        }
    }
}

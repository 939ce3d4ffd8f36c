//! What `-o` can ask for.

use jsonpath_rust::parser::model::JpQuery;

use super::document::Syntax;
use super::jsonpath::{self, Template};
use crate::failure::Failure;

#[derive(Debug)]
pub(crate) enum Format {
    Table(Choice),
    Document(Syntax),
    Name,
    Template(Template),
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

const FORMATS: &str = "use one of ps, wide, yaml, json, name, custom-columns=A,B, jsonpath=TEMPLATE";

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Format, Failure> {
        match text.split_once('=').unwrap_or((text, "")) {
            ("ps", "") => Ok(Format::Table(Choice::Narrow)),
            ("wide", "") => Ok(Format::Table(Choice::Wide)),
            ("yaml" | "yml", "") => Ok(Format::Document(Syntax::Yaml)),
            ("json", "") => Ok(Format::Document(Syntax::Json)),
            ("name", "") => Ok(Format::Name),
            ("custom-columns", "") => Err(Failure::usage("custom-columns needs at least one column")
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
            (format @ ("go-template" | "go-template-file"), _) => Err(Failure::usage(format!(
                "output format {format} is not supported: it needs Go's templates"
            ))
            .hint("use -o jsonpath=TEMPLATE or -o custom-columns=A,B instead")),
            _ => Err(Failure::usage(format!("unrecognized output format '{text}'")).hint(FORMATS)),
        }
    }
}

fn custom(column: &str) -> Result<Custom, Failure> {
    match column.split_once(':') {
        None => Ok(Custom::Heading(column.trim().to_ascii_uppercase())),
        Some((heading, path)) => {
            let query = jsonpath::path(path)
                .map_err(|problem| Failure::usage(format!("custom column {heading}: {problem}")))?;
            Ok(Custom::Path { heading: heading.to_owned(), query })
        }
    }
}

//! One row of a table: which cells it has, and how they are filled from a record.

use jsonpath_rust::parser::model::JpQuery;
use model::{Kind, Resource};
use serde_json::Value;
use store::Record;

use super::columns::{self, Lookups};
use super::endpoint::{self, Endpoint};
use super::format::{Choice, Custom};
use super::jsonpath;
use super::table::Table;
use crate::failure::Failure;
use crate::records;

/// The cells of every row of a table.
pub(crate) struct Row {
    cells: Vec<Cell>,
}

enum Cell {
    Endpoint(&'static endpoint::Column),
    Resource(&'static columns::Column),
    Path { heading: String, query: JpQuery },
}

/// A record, read in the ways that the cells of a row need and no others.
#[derive(Default)]
struct Views<'a> {
    endpoint: Option<Endpoint<'a>>,
    resource: Option<Resource>,
    document: Option<Value>,
}

impl Row {
    pub(crate) fn new(kind: Kind, choice: &Choice, show_namespace: bool) -> Result<Row, Failure> {
        let columns = columns::of(kind);
        let namespace = (show_namespace && kind.is_namespaced()).then_some("NAMESPACE");
        let usual = |headings: Vec<&'static str>| {
            namespace.into_iter().chain(headings).map(|heading| Cell::find(kind, heading)).collect()
        };
        let cells: Result<Vec<Cell>, Failure> = match choice {
            Choice::Narrow => usual(columns.narrow.to_vec()),
            Choice::Wide if kind == Kind::WorkloadEndpoint => usual(endpoint::WIDE.to_vec()),
            Choice::Wide => usual(columns.wide().collect()),
            Choice::Custom(custom) => custom
                .iter()
                .map(|column| match column {
                    Custom::Heading(heading) => Cell::find(kind, heading),
                    Custom::Path { heading, query } => {
                        Ok(Cell::Path { heading: heading.clone(), query: query.clone() })
                    }
                })
                .collect(),
        };
        Ok(Row { cells: cells? })
    }

    pub(crate) fn headings(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|cell| match cell {
            Cell::Endpoint(column) => column.heading,
            Cell::Resource(column) => column.heading,
            Cell::Path { heading, .. } => heading,
        })
    }

    /// Writes the cells of one record; none of them if the record cannot be read.
    pub(crate) fn write(&self, record: &Record, lookups: &Lookups, table: &mut Table) -> Result<(), Failure> {
        let views = self.views(record)?;
        for cell in &self.cells {
            match (cell, &views) {
                (Cell::Endpoint(column), Views { endpoint: Some(endpoint), .. }) => {
                    table.cell(|text| (column.cell)(endpoint, text));
                }
                (Cell::Resource(column), Views { resource: Some(resource), .. }) => {
                    table.cell(|text| text.push_str(&(column.cell)(resource, lookups)));
                }
                (Cell::Path { query, .. }, Views { document: Some(document), .. }) => {
                    let values = jsonpath::values(query, document).unwrap_or_default();
                    table.cell(|text| text.push_str(if values.is_empty() { "<none>" } else { &values }));
                }
                _ => unreachable!("every view that a cell needs was made"),
            }
        }
        Ok(())
    }

    fn views<'a>(&self, record: &'a Record) -> Result<Views<'a>, Failure> {
        let mut views = Views::default();
        for cell in &self.cells {
            match cell {
                Cell::Endpoint(_) if views.endpoint.is_none() => {
                    let endpoint = Endpoint::read(record).map_err(|error| {
                        Failure::new(format!("{}: the stored value cannot be read", record.key))
                            .caused_by(&error)
                    })?;
                    views.endpoint = Some(endpoint);
                }
                Cell::Resource(_) if views.resource.is_none() => {
                    views.resource = Some(records::to_resource(record)?);
                }
                Cell::Path { .. } if views.document.is_none() => {
                    views.document = Some(Value::Object(records::to_resource(record)?.to_document()));
                }
                _ => {}
            }
        }
        Ok(views)
    }
}

impl Cell {
    fn find(kind: Kind, heading: &str) -> Result<Cell, Failure> {
        let cells: Vec<Cell> = if kind == Kind::WorkloadEndpoint {
            endpoint::COLUMNS.iter().map(Cell::Endpoint).collect()
        } else {
            columns::of(kind).all.iter().map(Cell::Resource).collect()
        };
        let known: Vec<&str> = cells.iter().map(Cell::heading).collect();
        let unknown = || {
            Failure::usage(format!("unknown heading {heading}, valid values are: {}", known.join(", ")))
                .hint("any field can be a column when written as HEADING:.path.to.field")
        };
        let at = known.iter().position(|known| *known == heading).ok_or_else(unknown)?;
        Ok(cells.into_iter().nth(at).expect("the position was found in it"))
    }

    fn heading(&self) -> &'static str {
        match self {
            Cell::Endpoint(column) => column.heading,
            Cell::Resource(column) => column.heading,
            Cell::Path { .. } => "",
        }
    }
}

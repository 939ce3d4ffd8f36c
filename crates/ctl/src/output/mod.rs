//! How records are shown: tables, documents, names, templates.

pub(crate) mod boxed;
pub(crate) mod columns;
pub(crate) mod document;
pub(crate) mod endpoint;
pub(crate) mod format;
pub(crate) mod go_document;
pub(crate) mod go_template;
pub(crate) mod jsonpath;
mod row;
pub(crate) mod table;

use std::io::{self, Write};

use model::{Kind, Resource};
use serde_json::Value;
use store::Record;

use crate::failure::{Failure, Problems};
use crate::{compat, records};
use columns::Lookups;
use document::{ListWriter, list_document};
pub(crate) use format::Format;
use row::Row;
use table::Table;

/// How the results of one command are shown.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// Tables begin with the namespace.
    pub(crate) show_namespace: bool,
    /// Documents leave out what belongs to this cluster.
    pub(crate) export: bool,
    pub(crate) lookups: Lookups,
}

/// A list that is being shown, record by record. Records that cannot be read become `problems`; the rest is
/// shown all the same.
pub(crate) struct List<'a> {
    output: &'a Output,
    sink: Sink,
}

enum Sink {
    Table(Table, Row),
    Document(ListWriter),
    Name,
    /// A template needs the list as a whole, and so does what looks like Go's output.
    Whole {
        kind: Kind,
        revision: String,
        items: Vec<Value>,
    },
}

impl Output {
    /// Begins the list of a whole kind.
    pub(crate) fn begin_list(&self, kind: Kind, revision: &str) -> Result<List<'_>, Failure> {
        let sink = match &self.format {
            Format::Table(_) => self.table(kind)?,
            Format::Document(syntax) if !compat::is_strict() => {
                Sink::Document(ListWriter::of_kind(*syntax, kind, revision))
            }
            Format::Name => Sink::Name,
            Format::Document(_) | Format::Template(_) | Format::GoTemplate(_) => {
                Sink::Whole { kind, revision: revision.to_owned(), items: Vec::new() }
            }
        };
        Ok(List { output: self, sink })
    }

    /// Shows resources that were asked for one by one.
    pub(crate) fn show_named(
        &self,
        out: &mut dyn Write,
        records: &[Record],
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        match (&self.format, records) {
            (Format::Table(_), _) => return self.show_tables(out, records, problems),
            (Format::Document(syntax), _) if compat::is_strict() => {
                let documents = self.documents(records, problems);
                go_document::write_several(out, *syntax, &documents)?;
            }
            (Format::GoTemplate(template), _) => {
                let documents = self.documents(records, problems);
                write_go_template(out, template, documents, &self.lookups)?;
            }
            (Format::Document(syntax), [record]) => {
                if let Some(document) = self.document(record, problems) {
                    syntax.write_bare(out, &document)?;
                }
            }
            (Format::Document(syntax), _) => {
                let mut list = ListWriter::array(*syntax);
                for record in records {
                    if let Some(document) = self.document(record, problems) {
                        list.item(out, &document)?;
                    }
                }
                list.end(out)?;
            }
            (Format::Name, _) => records.iter().try_for_each(|record| write_name(out, record))?,
            (Format::Template(template), _) => {
                let documents = self.documents(records, problems);
                let whole = match <[Value; 1]>::try_from(documents) {
                    Ok([document]) => document,
                    Err(documents) => serde_json::json!({"kind": "List", "items": documents}),
                };
                write_template(out, template, &whole)?;
            }
        }
        Ok(())
    }

    /// One table for each, as calicoctl prints them, with an empty line between two.
    fn show_tables(
        &self,
        out: &mut dyn Write,
        records: &[Record],
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        for (index, record) in records.iter().enumerate() {
            if index > 0 && !compat::is_strict() {
                writeln!(out)?;
            }
            let mut list = List { output: self, sink: self.table(record.key.kind())? };
            list.push(out, record, problems)?;
            list.end(out)?;
        }
        Ok(())
    }

    fn table(&self, kind: Kind) -> Result<Sink, Failure> {
        let Format::Table(choice) = &self.format else { unreachable!("only tables have columns") };
        let row = Row::new(kind, choice, self.show_namespace)?;
        Ok(Sink::Table(Table::new(row.headings()), row))
    }

    fn documents(&self, records: &[Record], problems: &mut Problems) -> Vec<Value> {
        records.iter().filter_map(|record| self.document(record, problems)).collect()
    }

    fn document(&self, record: &Record, problems: &mut Problems) -> Option<Value> {
        match records::to_resource(record) {
            Ok(mut resource) => {
                if self.export {
                    strip_cluster_metadata(&mut resource);
                }
                Some(Value::Object(resource.to_document()))
            }
            Err(failure) => {
                problems.push(failure);
                None
            }
        }
    }
}

impl List<'_> {
    pub(crate) fn push(
        &mut self,
        out: &mut dyn Write,
        record: &Record,
        problems: &mut Problems,
    ) -> io::Result<()> {
        match &mut self.sink {
            Sink::Table(table, row) => match row.write(record, &self.output.lookups, table) {
                Ok(()) => table.end_row(out),
                Err(failure) => {
                    problems.push(failure);
                    Ok(())
                }
            },
            Sink::Document(list) => match self.output.document(record, problems) {
                Some(document) => list.item(out, &document),
                None => Ok(()),
            },
            Sink::Name => write_name(out, record),
            Sink::Whole { items, .. } => {
                items.extend(self.output.document(record, problems));
                Ok(())
            }
        }
    }

    pub(crate) fn end(self, out: &mut dyn Write) -> Result<(), Failure> {
        match (self.sink, &self.output.format) {
            (Sink::Table(mut table, _), _) => {
                table.flush(out)?;
                if compat::is_strict() {
                    // calicoctl leaves a gap after each table.
                    writeln!(out)?;
                }
            }
            (Sink::Document(list), _) => list.end(out)?,
            (Sink::Whole { kind, revision, items }, format) => {
                let list = Value::Object(list_document(kind, &revision, items));
                match format {
                    Format::Template(template) => write_template(out, template, &list)?,
                    Format::GoTemplate(template) => {
                        write_go_template(out, template, vec![list], &self.output.lookups)?;
                    }
                    Format::Document(syntax) => go_document::write_several(out, *syntax, &[list])?,
                    Format::Table(_) | Format::Name => {}
                }
            }
            (Sink::Name, _) => {}
        }
        Ok(())
    }
}

/// `ippool/default-ipv4-ippool`: what `plumb get` and `plumb delete` take as an argument.
pub(crate) fn short_name(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.name().to_ascii_lowercase())
}

fn write_name(out: &mut dyn Write, record: &Record) -> io::Result<()> {
    writeln!(out, "{}", short_name(record.key.kind(), &records::name(record)))
}

fn write_template(
    out: &mut dyn Write,
    template: &jsonpath::Template,
    document: &Value,
) -> Result<(), Failure> {
    let text = template.fill(document).map_err(|problem| Failure::new(format!("jsonpath: {problem}")))?;
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(())
}

fn write_go_template(
    out: &mut dyn Write,
    template: &go_template::Template,
    documents: Vec<Value>,
    lookups: &Lookups,
) -> Result<(), Failure> {
    let filled = template.fill(&documents, &lookups.as_number);
    // What came before a mistake is printed, as by Go.
    out.write_all(filled.text.as_bytes())?;
    match filled.problem {
        None => Ok(()),
        Some(problem) => {
            let said = format!("template: get: executing \"get\": {problem}");
            Err(Failure::new(format!("go-template: {problem}")).in_calicoctl(said))
        }
    }
}

fn strip_cluster_metadata(resource: &mut Resource) {
    let metadata = &mut resource.metadata;
    metadata.namespace = None;
    metadata.uid = None;
    metadata.resource_version = None;
    metadata.creation_timestamp = None;
    metadata.extra.remove("deletionTimestamp");
    metadata.extra.remove("deletionGracePeriodSeconds");
}

//! `plumb get`: all resources of a kind, some by name, or those a file names.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use model::{Key, Kind, Selector};
use serde_json::Value;
use store::{Record, Store};

use crate::cli::{Get, Global};
use crate::connect;
use crate::failure::{Failure, Failures, Problems};
use crate::output::columns::Lookups;
use crate::output::format::Choice;
use crate::output::{Format, List, Output};
use crate::reader::{self, Pages};
use crate::scope::{self, Named, Scope};
use crate::{compat, input, records};

/// The AS number of nodes if the cluster's BGPConfiguration says none.
const AS_NUMBER_DEFAULT: &str = "64512";

pub(crate) async fn run(global: &Global, get: &Get) -> Result<(), Failures> {
    let format = Format::parse(&get.output)?;
    let request = Request::of(get)?;
    let store = connect::open_for_reading(global).await?;
    let output = Output {
        lookups: lookups(&store, &format).await,
        format,
        show_namespace: request.scope.is_said(),
        export: get.export && !matches!(request.what, What::All(_)),
    };
    let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut problems = Problems::default();
    match request.what {
        What::All(kind) => {
            let namespace = match request.scope {
                Scope::AllNamespaces if kind.is_namespaced() => None,
                scope => scope.of_one(kind)?,
            };
            let all = All { kind, namespace, selector: request.selector };
            all.show(&store, &output, &mut out, &mut problems).await?;
        }
        What::Named(names) => show_named(&store, names, &output, &mut out, &mut problems).await?,
    }
    out.flush()?;
    problems.finish()
}

/// What was asked for.
struct Request {
    scope: Scope,
    selector: Option<Selector>,
    what: What,
}

enum What {
    All(Kind),
    Named(Vec<Named>),
}

impl Request {
    fn of(get: &Get) -> Result<Request, Failures> {
        let scope = Scope::new(get.namespace.namespace.as_deref(), get.all_namespaces)?;
        let selector = get.selector.as_deref().map(parse_selector).transpose()?;
        let what = if get.files.filename.is_empty() {
            let (kind, names) = scope::subjects(&get.subject).map_err(|failure| {
                let said = format!("failed to get resources: {}", failure.calicoctl());
                failure.in_calicoctl(said)
            })?;
            if names.is_empty() { What::All(kind) } else { What::Named(scope.named(kind, names)?) }
        } else {
            What::Named(named_in_files(get, &scope)?)
        };
        if let (What::Named(_), Some(_)) = (&what, &selector) {
            let message = "--selector cannot be combined with names or files";
            return Err(Failure::usage(message).into());
        }
        Ok(Request { scope, selector, what })
    }
}

fn parse_selector(text: &str) -> Result<Selector, Failure> {
    text.parse().map_err(|error: model::SelectorError| {
        Failure::usage(format!("invalid selector {text:?}"))
            .caused_by(&error)
            .hint("a selector looks like this: rack == 'a' && has(zone)")
    })
}

fn named_in_files(get: &Get, scope: &Scope) -> Result<Vec<Named>, Failures> {
    let mut all = Vec::new();
    for input in input::read(&get.files.filename, &get.files.reading)? {
        let mut resource = input.resource;
        all.push(scope.record_of(&mut resource).map_err(|failure| failure.in_file(&input.origin))?);
    }
    Ok(all)
}

async fn show_named(
    store: &Arc<dyn Store>,
    names: Vec<Named>,
    output: &Output,
    out: &mut dyn Write,
    problems: &mut Problems,
) -> Result<(), Failure> {
    let mut found = Vec::new();
    for named in names {
        match reader::find(store, &named).await? {
            Some(record) => found.push(record),
            None => problems.push(named.missing()),
        }
    }
    if found.is_empty() && !compat::is_strict() {
        return Ok(());
    }
    output.show_named(out, &found, problems)
}

/// A whole kind.
struct All {
    kind: Kind,
    namespace: Option<String>,
    selector: Option<Selector>,
}

impl All {
    async fn show(
        &self,
        store: &Arc<dyn Store>,
        output: &Output,
        out: &mut dyn Write,
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        match self.kind {
            Kind::IpamConfiguration => {
                let record = store.get(&Key::IpamConfig).await?;
                let revision = record.as_ref().map_or("0", |record| record.revision.as_str()).to_owned();
                self.show_few(record.into_iter().collect(), &revision, output, out, problems)
            }
            // Few, and not shown in the order they are stored in.
            Kind::Tier | Kind::Profile => {
                let (mut all, revision) = store.list_all(model::KeyRange::Kind(self.kind)).await?;
                self.arrange(&mut all);
                self.show_few(all, revision.as_str(), output, out, problems)
            }
            _ => self.show_pages(store, output, out, problems).await,
        }
    }

    async fn show_pages(
        &self,
        store: &Arc<dyn Store>,
        output: &Output,
        out: &mut dyn Write,
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        let mut pages = Pages::new(store, self.kind, self.namespace.as_deref());
        let mut list = None;
        while let Some(page) = pages.next().await? {
            let list = match &mut list {
                Some(list) => list,
                none => none.insert(output.begin_list(self.kind, page.revision.as_str())?),
            };
            self.push(list, &page.records, out, problems)?;
        }
        match list {
            Some(list) => list.end(out),
            None => Ok(()),
        }
    }

    fn show_few(
        &self,
        records: Vec<Record>,
        revision: &str,
        output: &Output,
        out: &mut dyn Write,
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        let mut list = output.begin_list(self.kind, revision)?;
        self.push(&mut list, &records, out, problems)?;
        list.end(out)
    }

    fn push(
        &self,
        list: &mut List<'_>,
        records: &[Record],
        out: &mut dyn Write,
        problems: &mut Problems,
    ) -> Result<(), Failure> {
        for record in records {
            let is_wanted = match &self.selector {
                None => true,
                Some(selector) => records::matches(record, selector).unwrap_or_else(|failure| {
                    problems.push(failure);
                    false
                }),
            };
            if is_wanted {
                list.push(out, record, problems)?;
            }
        }
        Ok(())
    }

    /// Tiers in the order in which they apply, as calicoctl shows them; profiles with the one that is always there.
    fn arrange(&self, all: &mut Vec<Record>) {
        if self.kind == Kind::Profile {
            all.retain(|record| !records::is_default_profile(&record.key));
            all.push(records::default_profile());
            return;
        }
        records::sort_by_order(all);
    }
}

/// What tables of nodes need to know beyond the nodes. If it cannot be read, the table says so in its place.
async fn lookups(store: &Arc<dyn Store>, format: &Format) -> Lookups {
    if !matches!(format, Format::Table(Choice::Wide | Choice::Custom(_)) | Format::GoTemplate(_)) {
        return Lookups::default();
    }
    let read = store.get(&Key::cluster(Kind::BgpConfiguration, "default")).await;
    let as_number = match read.map(|record| record.as_ref().map(records::to_resource)) {
        Ok(Some(Ok(resource))) => match resource.spec("asNumber") {
            Some(Value::String(text)) => text.clone(),
            Some(number) => number.to_string(),
            None => AS_NUMBER_DEFAULT.to_owned(),
        },
        Ok(None) => AS_NUMBER_DEFAULT.to_owned(),
        Ok(Some(Err(_))) | Err(_) => "unknown".to_owned(),
    };
    Lookups { as_number }
}

//! Answers a search that asks for all blocks of an IP version, on a store in which reading each would be a request.
//!
//! Requests do not grow with the number of addresses, and with blocks only by the page: a list of names and revisions, and a look at
//! each block that was written since it was last read. Where that would be more than a few, because nothing is remembered yet, the
//! blocks are listed whole.

use std::sync::Arc;

use ipam::Survey;
use model::{Cidr, Key, KeyRange};
use store::{ListRequest, Record, Store, StoreError};

use crate::look;
use crate::warm::{Prospects, Warm};

/// More blocks than that are not looked at one by one.
const UNREAD_MAX: usize = 32;

/// Names and revisions are short.
const PER_PAGE_IN_BRIEF: usize = 1_000;

pub(crate) async fn fill(
    store: &Arc<dyn Store>,
    memory: Option<&Warm>,
    survey: &Survey,
) -> Result<Survey, StoreError> {
    if let Some(memory) = memory
        && let Some(filled) = in_brief(store, memory, survey.clone()).await?
    {
        return Ok(filled);
    }
    let mut filled = survey.clone();
    let found = whole(store, &mut filled).await?;
    if let Some(memory) = memory {
        memory.learn_prospects(survey.version(), survey.reserved(), found);
    }
    Ok(filled)
}

/// Which blocks there are, and what is known about them; `None` if that is too little.
async fn in_brief(
    store: &Arc<dyn Store>,
    memory: &Warm,
    mut survey: Survey,
) -> Result<Option<Survey>, StoreError> {
    let mut known = memory.prospects(survey.version(), survey.reserved());
    if known.is_empty() {
        return Ok(None);
    }
    let (mut unread, mut still_known) = (0, Prospects::new());
    let request = ListRequest::new(KeyRange::BlocksInBrief(survey.version())).with_limit(PER_PAGE_IN_BRIEF);
    pages(store, request, |cidr, record| match known.remove(&cidr) {
        Some((revision, prospect)) if revision == record.revision => {
            survey.recall(cidr, prospect);
            still_known.insert(cidr, (revision, prospect));
        }
        _ => {
            unread += usize::from(survey.wants(&cidr));
            survey.exists(cidr);
        }
    })
    .await?;
    if unread > UNREAD_MAX {
        return Ok(None);
    }
    memory.learn_prospects(survey.version(), survey.reserved(), still_known);
    Ok(Some(survey))
}

async fn whole(store: &Arc<dyn Store>, survey: &mut Survey) -> Result<Prospects, StoreError> {
    let mut found = Prospects::new();
    pages(store, ListRequest::new(KeyRange::Blocks(survey.version())), |cidr, record| {
        let answer = look::read(&Key::Block(cidr), Some(&record));
        if let Some(prospect) = survey.read(cidr, answer) {
            found.insert(cidr, (record.revision, prospect));
        }
    })
    .await?;
    Ok(found)
}

async fn pages(
    store: &Arc<dyn Store>,
    mut request: ListRequest,
    mut each: impl FnMut(Cidr, Record),
) -> Result<(), StoreError> {
    loop {
        let page = store.list(request.clone()).await?;
        for record in page.records {
            if let Key::Block(cidr) = record.key {
                each(cidr, record);
            }
        }
        match page.next {
            Some(next) => request = request.continued(next),
            None => return Ok(()),
        }
    }
}

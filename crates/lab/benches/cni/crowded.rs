//! Single calls while others keep every core busy: a call through the agent changes processes, each change waits for a core.

use anyhow::Result;
use lab::Lab;

use crate::contender::{Contender, Who};
use crate::{Extent, busy};

pub(crate) fn measure(lab: &Lab, extent: Extent, contenders: &mut [Contender]) -> Result<()> {
    let _load = busy::Load::start();
    let is_measured = |contender: &&mut Contender| {
        matches!(contender.who, Who::AgentOnSqlite | Who::AgentOnEtcd | Who::OneShotOnSqlite)
    };
    for number in 0..extent.singles {
        for contender in contenders.iter_mut().filter(is_measured) {
            contender.crowded_single(lab, &format!("crowded-{number}"))?;
        }
    }
    contenders.iter_mut().filter(is_measured).for_each(|contender| contender.crowded.end_run());
    Ok(())
}

//! A tree and its data to text.

use serde_json::Value;

use super::functions::call;
use super::parse::{Command, Node, Operand, Pipeline};
use super::value::Val;

/// Whoever prints more wants something else.
const TEXT_BYTES_MAX: usize = 256 << 20;

pub(super) struct Run<'a> {
    pub(super) text: String,
    /// What a lone dot is.
    dot: Val,
    variables: Vec<(String, Val)>,
    as_number: &'a str,
}

/// Whether a loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    On,
    Break,
    Continue,
}

impl Run<'_> {
    pub(super) fn new<'a>(documents: &[Value], as_number: &'a str) -> Run<'a> {
        let dot = Val::everything(documents);
        Run { text: String::new(), variables: vec![(String::new(), dot.clone())], dot, as_number }
    }

    pub(super) fn nodes(&mut self, nodes: &[Node]) -> Result<Flow, String> {
        let known = self.variables.len();
        let mut flow = Flow::On;
        for node in nodes {
            flow = self.node(node)?;
            if flow != Flow::On {
                break;
            }
        }
        self.variables.truncate(known);
        Ok(flow)
    }

    fn node(&mut self, node: &Node) -> Result<Flow, String> {
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(format!("the output is longer than {TEXT_BYTES_MAX} bytes"));
        }
        match node {
            Node::Text(text) => self.text.push_str(text),
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
            Node::Action(pipeline) => {
                let value = self.pipeline(pipeline)?;
                if pipeline.variables.is_empty() {
                    self.text.push_str(&value.print());
                }
            }
            Node::If { condition, then, otherwise } => {
                let known = self.variables.len();
                let chosen = if self.pipeline(condition)?.truth() { then } else { otherwise };
                let flow = self.nodes(chosen)?;
                self.variables.truncate(known);
                return Ok(flow);
            }
            Node::With { value, then, otherwise } => {
                let known = self.variables.len();
                let value = self.pipeline(value)?;
                let flow = match value.truth() {
                    true => self.nodes_with(then, value)?,
                    false => self.nodes(otherwise)?,
                };
                self.variables.truncate(known);
                return Ok(flow);
            }
            Node::Range { items, body, otherwise } => return self.range(items, body, otherwise),
        }
        Ok(Flow::On)
    }

    fn range(&mut self, items: &Pipeline, body: &[Node], otherwise: &[Node]) -> Result<Flow, String> {
        let known = self.variables.len();
        let items_of = self.value_of(items)?.items()?;
        if items_of.is_empty() {
            return self.nodes(otherwise);
        }
        for (key, item) in items_of {
            self.variables.truncate(known);
            let values = match items.variables.as_slice() {
                [] => Vec::new(),
                [of_item] => vec![(of_item, item.clone())],
                [of_key, of_item, ..] => vec![(of_key, key), (of_item, item.clone())],
            };
            for (name, value) in values {
                self.set(name, value, items.assigns);
            }
            if self.nodes_with(body, item)? == Flow::Break {
                break;
            }
        }
        self.variables.truncate(known);
        Ok(Flow::On)
    }

    fn nodes_with(&mut self, nodes: &[Node], dot: Val) -> Result<Flow, String> {
        let outer = std::mem::replace(&mut self.dot, dot);
        let flow = self.nodes(nodes);
        self.dot = outer;
        flow
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Val, String> {
        let value = self.value_of(pipeline)?;
        for name in &pipeline.variables {
            self.set(name, value.clone(), pipeline.assigns);
        }
        Ok(value)
    }

    fn set(&mut self, name: &str, value: Val, assigns: bool) {
        match self.variables.iter_mut().rev().find(|(known, _)| known == name).filter(|_| assigns) {
            Some((_, known)) => *known = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }

    fn value_of(&mut self, pipeline: &Pipeline) -> Result<Val, String> {
        let mut value = None;
        for command in &pipeline.commands {
            value = Some(self.command(command, value)?);
        }
        Ok(value.unwrap_or(Val::Nothing))
    }

    /// `before` is what the command before it in the pipeline gave: the last argument.
    fn command(&mut self, command: &Command, before: Option<Val>) -> Result<Val, String> {
        let mut arguments = Vec::new();
        for operand in &command.operands {
            arguments.push(self.operand(operand)?);
        }
        match &command.function {
            Some(name) => {
                arguments.extend(before);
                call(name, &arguments, self.as_number)
            }
            None if before.is_some() => Err("can't give argument to non-function".to_owned()),
            None => Ok(arguments.into_iter().next().unwrap_or(Val::Nothing)),
        }
    }

    fn operand(&mut self, operand: &Operand) -> Result<Val, String> {
        match operand {
            Operand::Field(names) => descend(self.dot.clone(), names),
            Operand::Variable(name, names) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let value = found.map(|(_, value)| value.clone());
                descend(value.ok_or_else(|| format!("undefined variable \"${name}\""))?, names)
            }
            Operand::Text(text) => Ok(Val::plain(text.as_str())),
            Operand::Number(number, is_whole) => Ok(Val::number(*number, *is_whole)),
            Operand::Bool(flag) => Ok(Val::plain(*flag)),
            Operand::Nil => Ok(Val::Nothing),
            Operand::Group(pipeline, names) => {
                let value = self.value_of(pipeline)?;
                descend(value, names)
            }
            Operand::Call(name) => call(name, &[], self.as_number),
        }
    }
}

fn descend(value: Val, names: &[String]) -> Result<Val, String> {
    names.iter().try_fold(value, |value, name| value.field(name))
}

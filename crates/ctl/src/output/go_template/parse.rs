//! Words to a tree.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::DEPTH_MAX;
use super::functions::is_function;
use super::lex::{Piece, Word, pieces};

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Action(Pipeline),
    If { condition: Pipeline, then: Vec<Node>, otherwise: Vec<Node> },
    With { value: Pipeline, then: Vec<Node>, otherwise: Vec<Node> },
    Range { items: Pipeline, body: Vec<Node>, otherwise: Vec<Node> },
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct Pipeline {
    /// Variables that get the value.
    pub(super) variables: Vec<String>,
    /// They exist already.
    pub(super) assigns: bool,
    pub(super) commands: Vec<Command>,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) function: Option<String>,
    pub(super) operands: Vec<Operand>,
}

#[derive(Debug)]
pub(super) enum Operand {
    Field(Vec<String>),
    Variable(String, Vec<String>),
    Text(String),
    Number(f64, bool),
    Bool(bool),
    Nil,
    /// A pipeline in parentheses, and the fields of its value.
    Group(Pipeline, Vec<String>),
    /// A function without arguments.
    Call(String),
}

struct Parser {
    pieces: Peekable<IntoIter<Piece>>,
    variables: Vec<String>,
    depth: usize,
    line: usize,
}

/// What ended a block.
enum Close {
    End,
    /// With what follows: nothing, or `if …` or `with …`.
    Else(Vec<Word>),
    OfTemplate,
}

pub(super) fn parse(text: &str) -> Result<Vec<Node>, String> {
    let pieces = pieces(text)?.into_iter().peekable();
    let mut parser = Parser { pieces, variables: vec![String::new()], depth: 0, line: 1 };
    match parser.block()? {
        (nodes, Close::OfTemplate) => Ok(nodes),
        (_, Close::End) => Err(parser.at("unexpected {{end}}")),
        (_, Close::Else(_)) => Err(parser.at("unexpected {{else}}")),
    }
}

impl Parser {
    fn at(&self, problem: &str) -> String {
        format!("{}: {problem}", self.line)
    }

    fn block(&mut self) -> Result<(Vec<Node>, Close), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.at("nested too deep"));
        }
        let known = self.variables.len();
        let mut nodes = Vec::new();
        let end = loop {
            match self.pieces.next() {
                None => break Close::OfTemplate,
                Some(Piece::Text(text)) => nodes.push(Node::Text(text)),
                Some(Piece::Action { line, words }) => {
                    self.line = line;
                    match words.split_first() {
                        Some((Word::Name(name), rest)) if name == "end" && rest.is_empty() => {
                            break Close::End;
                        }
                        Some((Word::Name(name), rest)) if name == "else" => break Close::Else(rest.to_vec()),
                        _ => nodes.push(self.node(words)?),
                    }
                }
            }
        };
        self.variables.truncate(known);
        self.depth -= 1;
        Ok((nodes, end))
    }

    fn node(&mut self, words: Vec<Word>) -> Result<Node, String> {
        let keyword = match words.first() {
            Some(Word::Name(name)) => name.clone(),
            _ => String::new(),
        };
        let rest = || words.iter().skip(1).cloned().collect::<Vec<_>>();
        match keyword.as_str() {
            "if" | "with" | "range" => self.control(&keyword, rest()),
            "break" if words.len() == 1 => Ok(Node::Break),
            "continue" if words.len() == 1 => Ok(Node::Continue),
            "define" | "template" | "block" => Err(self.at(&format!("{{{{{keyword}}}}} is not supported"))),
            _ => Ok(Node::Action(self.pipeline(words)?)),
        }
    }

    fn control(&mut self, keyword: &str, words: Vec<Word>) -> Result<Node, String> {
        let known = self.variables.len();
        let pipeline = self.pipeline(words)?;
        let (body, end) = self.block()?;
        let otherwise = match end {
            Close::OfTemplate => return Err(self.at("unexpected EOF")),
            Close::End => Vec::new(),
            Close::Else(words) => self.otherwise(words)?,
        };
        self.variables.truncate(known);
        Ok(match keyword {
            "if" => Node::If { condition: pipeline, then: body, otherwise },
            "with" => Node::With { value: pipeline, then: body, otherwise },
            _ => Node::Range { items: pipeline, body, otherwise },
        })
    }

    fn otherwise(&mut self, words: Vec<Word>) -> Result<Vec<Node>, String> {
        match words.split_first() {
            None => match self.block()? {
                (nodes, Close::End) => Ok(nodes),
                _ => Err(self.at("expected end after {{else}}")),
            },
            Some((Word::Name(name), rest)) if matches!(name.as_str(), "if" | "with") => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(self.at("nested too deep"));
                }
                let node = self.control(name, rest.to_vec())?;
                self.depth -= 1;
                Ok(vec![node])
            }
            Some(_) => Err(self.at("unexpected word in {{else}}")),
        }
    }

    fn pipeline(&mut self, words: Vec<Word>) -> Result<Pipeline, String> {
        let mut words = words.into_iter().peekable();
        let pipeline = self.commands(&mut words)?;
        match words.next() {
            None => Ok(pipeline),
            Some(_) => Err(self.at("unexpected right paren")),
        }
    }

    /// Commands up to the end or to a closing parenthesis, which is left.
    fn commands(&mut self, words: &mut Peekable<IntoIter<Word>>) -> Result<Pipeline, String> {
        let (variables, assigns) = self.declared(words);
        let mut commands = Vec::new();
        loop {
            commands.push(self.command(words)?);
            if words.next_if_eq(&Word::Pipe).is_none() {
                break;
            }
        }
        if assigns {
            if let Some(unknown) = variables.iter().find(|name| !self.variables.contains(name)) {
                return Err(self.at(&format!("undefined variable \"${unknown}\"")));
            }
        } else {
            self.variables.extend(variables.iter().cloned());
        }
        Ok(Pipeline { variables, assigns, commands })
    }

    /// `$x :=`, `$x =` or `$i, $x :=` at the beginning of a pipeline.
    fn declared(&mut self, words: &mut Peekable<IntoIter<Word>>) -> (Vec<String>, bool) {
        let mut ahead = words.clone();
        let mut names = Vec::new();
        while let Some(Word::Variable(name, fields)) = ahead.next() {
            if !fields.is_empty() {
                break;
            }
            names.push(name);
            let assigns = match ahead.next() {
                Some(Word::Comma) => continue,
                Some(Word::Declare) => false,
                Some(Word::Assign) => true,
                _ => break,
            };
            *words = ahead;
            return (names, assigns);
        }
        (Vec::new(), false)
    }

    fn command(&mut self, words: &mut Peekable<IntoIter<Word>>) -> Result<Command, String> {
        let mut command = Command { function: None, operands: Vec::new() };
        while let Some(word) = words.next_if(|word| !matches!(word, Word::Pipe | Word::Close(_))) {
            if let (Word::Name(name), None, true) = (&word, &command.function, command.operands.is_empty())
                && is_function(name)
            {
                command.function = Some(name.clone());
                continue;
            }
            let operand = self.operand(word, words)?;
            command.operands.push(operand);
        }
        if command.function.is_none() && command.operands.is_empty() {
            return Err(self.at("missing value for command"));
        }
        if command.function.is_none() && command.operands.len() > 1 {
            return Err(self.at("can't give argument to non-function"));
        }
        Ok(command)
    }

    fn operand(&mut self, word: Word, words: &mut Peekable<IntoIter<Word>>) -> Result<Operand, String> {
        Ok(match word {
            Word::Field(names) => Operand::Field(names),
            Word::Variable(name, fields) => {
                if !self.variables.contains(&name) {
                    return Err(self.at(&format!("undefined variable \"${name}\"")));
                }
                Operand::Variable(name, fields)
            }
            Word::Text(text) => Operand::Text(text),
            Word::Number(number, is_whole) => Operand::Number(number, is_whole),
            Word::Name(name) => match name.as_str() {
                "true" | "false" => Operand::Bool(name == "true"),
                "nil" => Operand::Nil,
                _ if is_function(&name) => Operand::Call(name),
                _ => return Err(self.at(&format!("function {name:?} not defined"))),
            },
            Word::Open => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(self.at("nested too deep"));
                }
                let group = self.commands(words)?;
                self.depth -= 1;
                match words.next() {
                    Some(Word::Close(fields)) => Operand::Group(group, fields),
                    _ => return Err(self.at("unclosed left paren")),
                }
            }
            Word::Close(_) | Word::Pipe | Word::Declare | Word::Assign | Word::Comma => {
                return Err(self.at("unexpected word in operand"));
            }
        })
    }
}

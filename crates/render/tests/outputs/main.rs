//! The outputs of one report: text, JSON and page, for friendly and for hostile names.

mod history;
mod hostile;
mod html;
mod json;
mod limits;
mod logs_json;
mod page_of_codes;
mod reports;
mod schema;
mod text;

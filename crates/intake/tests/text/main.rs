//! Raw texts, to evidence: the files of the incidents, every format in the form its tool prints it, and hostile input.

mod formats;
mod hostile;
mod incidents;
mod terminals;

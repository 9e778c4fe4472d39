//! Makes a failing program small: takes out steps and rows while it still fails.

use crate::program::Program;
use crate::run::Disagreement;

/// The smallest program found that still fails, and how it does.
pub fn shrink(
    program: Program,
    disagreement: Disagreement,
    fails: impl Fn(&Program) -> Option<Disagreement>,
) -> (Program, Disagreement) {
    let (mut program, mut disagreement) = (program, disagreement);
    if let Some(step) = disagreement.step {
        program.steps.truncate(step + 1);
    }
    let mut size = program.steps.len();
    while size > 0 {
        let mut at = 0;
        while at < program.steps.len() {
            let mut smaller = program.clone();
            smaller.steps.drain(at..(at + size).min(program.steps.len()));
            match fails(&smaller) {
                Some(found) => (program, disagreement) = (smaller, found),
                None => at += size,
            }
        }
        size /= 2;
    }
    let mut at = 0;
    while at < program.rows.len() {
        let mut smaller = program.clone();
        smaller.rows.remove(at);
        match fails(&smaller) {
            Some(found) => (program, disagreement) = (smaller, found),
            None => at += 1,
        }
    }
    (program, disagreement)
}

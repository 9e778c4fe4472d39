//! `kvqueue` with one handler more. The README shows this file.

use kvqueue::{Context, Handler, Item, Outcome, SettingsError};

struct Mail;

#[kvqueue::async_trait]
impl Handler for Mail {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        println!("to {}", String::from_utf8_lossy(&item.payload));
        Outcome::Done
    }
}

fn main() -> std::process::ExitCode {
    kvqueue::cli::main_with(|daemon| daemon.handler("mail", |_| Ok::<_, SettingsError>(Mail))).into()
}

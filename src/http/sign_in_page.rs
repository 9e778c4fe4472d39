//! The pages that a browser gets for a link that signs it in: a question, or why the link does not work.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderMap},
    },
};

use super::guard::Caller;

/// The pages have one form, which goes to the daemon. With the usual referrer policy, browsers would send it from the
/// origin `null`, which is refused.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";
const REFERRER_POLICY: &str = "same-origin";

/// Whether a person looks at the answer.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
    accepted.into_iter().any(|accepted| accepted.contains("text/html"))
}

/// Asks whether to sign in as this client. `session` is the one that the browser is signed in as.
pub(super) fn question(caller: &Caller, session: Option<&Caller>) -> HttpResponse {
    let replaces = session.map(|session| {
        format!("<p>This browser is signed in {} now. That session ends.</p>", named(session))
    });
    let body = format!(
        "<h1>Sign in {name}?</h1>\
         <p>This link signs this browser in {name}, for a week. What you do on the dashboard is then done {name}.</p>{}\
         <p>If you did not ask for the link with <code>kvqueue page</code>, close this page: somebody else may want you to \
         work as he does.</p>\
         <form method=\"post\" class=\"buttons\"><button class=\"primary\" autofocus>Sign in</button> \
         <a href=\"../\">Cancel</a></form>",
        replaces.as_deref().unwrap_or_default(),
        name = named(caller),
    );
    page(StatusCode::OK, "Sign in", &body)
}

/// Says that a link does not work, and what to do.
pub(super) fn useless_link() -> HttpResponse {
    let body = "<h1>This link does not work any more</h1>\
         <p>A link of <code>kvqueue page</code> works once, and for five minutes. It also ends when the daemon stops, and \
         when the operator's secret changes.</p>\
         <p>Run <code>kvqueue page</code> for another link, or <a href=\"../\">open the dashboard</a> and enter an access \
         token. If this browser is signed in already, the dashboard opens at once.</p>";
    page(StatusCode::NOT_FOUND, "The link does not work", body)
}

/// A client, as in "sign in as the operator". The names of tokens have letters, digits, hyphens, underscores and full stops only.
fn named(caller: &Caller) -> String {
    match caller {
        Caller::Anyone => "without a token".to_owned(),
        Caller::Operator => "as the operator".to_owned(),
        Caller::Token(token) => format!("with the token <code>{}</code>", token.name),
    }
}

fn page(status: StatusCode, title: &str, body: &str) -> HttpResponse {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title} · kvqueue</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"../assets/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"../assets/style.css\">\n</head>\n<body>\n\
         <header class=\"top\"><a class=\"brand\" href=\"../\"><img src=\"../assets/icon.svg\" alt=\"\" width=\"24\" \
         height=\"24\">kvqueue</a></header>\n<main class=\"plain\">\n{body}\n</main>\n</body>\n</html>\n"
    );
    HttpResponse::build(status)
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::REFERRER_POLICY, REFERRER_POLICY))
        .content_type("text/html; charset=utf-8")
        .body(page)
}

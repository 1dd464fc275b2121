//! Logging in: at an issuer that means well, and at servers and issuers that do not.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_canon::Object;
use portcullis_egress::Secret;
use portcullis_mcp::{AnswerError, CallFailure, LoginError, LoginTerms, Session as _};
use sha2::{Digest as _, Sha256};

use crate::login_scene::{
    Answer, METADATA, PRM, Plan, REDIRECT, ROOT_PRM, Scene, Seen, query, tokens,
};

#[tokio::test]
async fn a_login_gets_a_token_that_its_server_takes() {
    let scene = Scene::good();
    let asked = scene.begin(scene.terms()).await.unwrap();
    let of = |name: &str| query(asked.url(), name);
    assert!(asked.url().starts_with(&scene.issuer.url("/authorize?")), "{}", asked.url());
    let resource = scene.server.url("/mcp");
    for (name, expected) in [
        ("response_type", "code"),
        ("client_id", "client-1"),
        ("redirect_uri", REDIRECT),
        ("code_challenge_method", "S256"),
        ("resource", &resource),
        ("scope", "pay:read"),
    ] {
        assert_eq!(of(name).as_deref(), Some(expected), "{name}");
    }
    let (state, challenge) = (of("state").unwrap(), of("code_challenge").unwrap());
    assert_eq!((state.len(), challenge.len()), (43, 43), "256 bits each");
    let code = asked.read(&format!("code=code-1&state={state}")).unwrap();
    asked.redeem(code).await.unwrap();

    let [traded] = scene.issuer.of("/token").try_into().unwrap();
    let traded: Seen = traded;
    let verifier = traded.field("code_verifier").unwrap();
    assert_eq!(URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)), challenge);
    for (name, expected) in [
        ("grant_type", "authorization_code"),
        ("code", "code-1"),
        ("redirect_uri", REDIRECT),
        ("resource", &resource),
        ("client_id", "client-1"),
    ] {
        assert_eq!(traded.field(name).as_deref(), Some(expected), "{name}");
    }
    let mode = std::fs::metadata(&scene.file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let session = scene.connect(None).await.unwrap();

    // What takes more than the token may do says so, with what a person runs.
    let refused = session
        .call("pay", Object::new(), Duration::from_secs(60).into(), &|_| {})
        .await
        .unwrap_err();
    let CallFailure::NotSent(why) = refused else { panic!("{refused:?}") };
    assert!(
        why.contains("403") && why.contains("`portcullis login bank --scope 'pay:write'`"),
        "{why}"
    );
}

type Change = fn(&mut Plan, &mut Plan, &str);

fn to(place: &str) -> Answer {
    (302, format!("location: {place}\r\n"), String::new())
}

fn giant() -> Answer {
    let text = format!("{{\"resource\":\"{}\"}}", "x".repeat(70 * 1024));
    (200, "content-type: application/json\r\n".to_owned(), text)
}

fn text(body: &str) -> Answer {
    (200, "content-type: application/json\r\n".to_owned(), body.to_owned())
}

/// Refuses with this word, besides where its metadata are.
fn refuses(server: &mut Plan, word: &str) {
    let (_, head, token) = &server.fixed["/mcp"];
    let (bearer, _) = head.split_once(", scope=").unwrap();
    let answer = (0, format!("{bearer}, {word}\r\n"), token.clone());
    server.at("/mcp", answer);
}

const HOSTILE: &[(&str, Change, &str)] = &[
    (
        "another resource",
        |s, _, _| s.edit(PRM, |d| drop(d.insert("resource", "https://evil.example/mcp"))),
        "calls itself `https://evil.example/mcp`",
    ),
    (
        "a resource beside it",
        |s, _, own| s.edit(PRM, |d| drop(d.insert("resource", format!("{own}/other").as_str()))),
        "calls itself",
    ),
    (
        "the whole origin in the document of the origin",
        |s, _, own| {
            s.at("/mcp", (0, String::new(), "t".repeat(9)));
            s.fixed.remove(PRM);
            let document = format!("{{\"resource\":\"{own}\"}}");
            s.at(ROOT_PRM, text(&document));
        },
        "if that is right, say so with `resource`",
    ),
    (
        "scopes that are none in a refusal",
        |s, _, _| refuses(s, "scope=\"read a\\\\b\""),
        "the scopes that are asked for",
    ),
    (
        "scopes twice in a refusal",
        |s, _, _| refuses(s, "scope=\"read\", scope=\"write\""),
        "the scopes that are asked for",
    ),
    (
        "scopes without end in a refusal",
        |s, _, _| refuses(s, "scope=\"read"),
        "the scopes that are asked for",
    ),
    (
        "too many scopes in a refusal",
        |s, _, _| {
            let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
            refuses(s, &format!("scope=\"{}\"", many.join(" ")));
        },
        "the scopes that are asked for",
    ),
    (
        "scopes that are none in the metadata",
        |s, _, _| {
            refuses(s, "realm=\"x\"");
            s.edit(PRM, |d| drop(d.insert("scopes_supported", vec!["read".into(), "a b".into()])));
        },
        "the scopes that are asked for",
    ),
    (
        "scopes that are too long in the metadata",
        |s, _, _| {
            refuses(s, "realm=\"x\"");
            let long = "x".repeat(2_049);
            s.edit(PRM, |d| drop(d.insert("scopes_supported", vec![long.as_str().into()])));
        },
        "the scopes that are asked for",
    ),
    (
        "a page at a private address",
        |_, i, _| {
            i.edit(METADATA, |d| {
                drop(d.insert("authorization_endpoint", "https://10.0.0.1/authorize"))
            })
        },
        "no rule can open",
    ),
    (
        "the whole origin where the server named the place",
        |s, _, own| s.edit(PRM, |d| drop(d.insert("resource", own))),
        "calls itself",
    ),
    (
        "metadata elsewhere",
        |s, _, _| {
            s.at(
                "/mcp",
                (
                    0,
                    "www-authenticate: Bearer resource_metadata=\"http://127.0.0.1:1/x\"\r\n"
                        .to_owned(),
                    "t".repeat(9),
                ),
            )
        },
        "not the server's own",
    ),
    (
        "metadata at a private address",
        |s, _, _| {
            s.at(
                "/mcp",
                (
                    0,
                    "www-authenticate: Bearer resource_metadata=\"http://169.254.169.254/x\"\r\n"
                        .to_owned(),
                    "t".repeat(9),
                ),
            )
        },
        "on plain http",
    ),
    ("metadata that lead elsewhere", |s, _, _| s.at(PRM, to("https://evil.example/")), "redirect"),
    ("metadata without end", |s, _, _| s.at(PRM, giant()), "longer than 65536 bytes"),
    ("metadata that are none", |s, _, _| s.at(PRM, text("<html>")), "no such document"),
    (
        "metadata that say it twice",
        |s, _, own| {
            s.at(PRM, text(&format!("{{\"resource\":\"{own}/mcp\",\"resource\":\"{own}/mcp\"}}")))
        },
        "no such document",
    ),
    (
        "metadata that fail",
        |s, _, _| s.at(PRM, (500, String::new(), String::new())),
        "status of its answer",
    ),
    ("no metadata where it said", |s, _, _| drop(s.fixed.remove(PRM)), "at none of its places"),
    (
        "another issuer",
        |s, _, _| {
            s.edit(PRM, |d| {
                drop(d.insert("authorization_servers", vec!["https://evil.example".into()]))
            })
        },
        "names `https://evil.example`, and not the issuer that was confirmed",
    ),
    (
        "no issuer",
        |s, _, _| s.edit(PRM, |d| drop(d.remove("authorization_servers"))),
        "names nobody",
    ),
    (
        "another's metadata",
        |_, i, _| i.edit(METADATA, |d| drop(d.insert("issuer", "https://evil.example"))),
        "are those of `https://evil.example`",
    ),
    (
        "a name that is nearly it",
        |_, i, _| {
            i.edit(METADATA, |d| {
                let near = format!("{}/", d.get("issuer").unwrap().as_str().unwrap());
                drop(d.insert("issuer", near.as_str()));
            })
        },
        "are those of",
    ),
    (
        "issuer's metadata that lead elsewhere",
        |_, i, _| i.at(METADATA, to("https://evil.example/")),
        "redirect",
    ),
    ("issuer's metadata without end", |_, i, _| i.at(METADATA, giant()), "longer than 65536 bytes"),
    (
        "no PKCE",
        |_, i, _| i.edit(METADATA, |d| drop(d.remove("code_challenge_methods_supported"))),
        "does not announce PKCE",
    ),
    (
        "plain PKCE alone",
        |_, i, _| {
            i.edit(METADATA, |d| {
                drop(d.insert("code_challenge_methods_supported", vec!["plain".into()]))
            })
        },
        "does not announce PKCE",
    ),
    (
        "a token endpoint in the clear",
        |_, i, _| {
            i.edit(METADATA, |d| drop(d.insert("token_endpoint", "http://login.example/token")))
        },
        "on plain http",
    ),
    (
        "a token endpoint that no rule opens",
        |_, i, _| {
            i.edit(METADATA, |d| drop(d.insert("token_endpoint", "https://169.254.169.254/token")))
        },
        "no rule can open",
    ),
    (
        "no token endpoint",
        |_, i, _| i.edit(METADATA, |d| drop(d.remove("token_endpoint"))),
        "an endpoint is missing",
    ),
    (
        "no client",
        |_, i, _| i.edit(METADATA, |d| drop(d.remove("registration_endpoint"))),
        "knows no client",
    ),
    (
        "a registration that leads elsewhere",
        |_, i, _| i.at("/register", to("https://evil.example/")),
        "redirect",
    ),
    (
        "a registration that is refused",
        |_, i, _| {
            i.at(
                "/register",
                (
                    400,
                    String::new(),
                    "{\"error\":\"invalid_redirect_uri\",\"error_description\":\"canary\"}"
                        .to_owned(),
                ),
            )
        },
        "status 400 (`invalid_redirect_uri`)",
    ),
    (
        "a client without its secret",
        |_, i, _| {
            i.at(
                "/register",
                text("{\"client_id\":\"c\",\"token_endpoint_auth_method\":\"client_secret_post\"}"),
            )
        },
        "gave no secret",
    ),
    (
        "a client with a proof that we do not know",
        |_, i, _| {
            i.at("/register", text("{\"client_id\":\"c\",\"client_secret\":\"long-enough\",\"token_endpoint_auth_method\":\"canary_jwt\"}"))
        },
        "gave no secret for `canary_jwt`",
    ),
];

#[tokio::test]
async fn what_is_said_wrongly_of_a_login_ends_it_before_a_person_is_asked() {
    for (what, change, expected) in HOSTILE {
        let scene = Scene::new(change);
        let error = scene.begin(scene.terms()).await.err().expect(what).to_string();
        assert!(error.contains(expected), "{what}: {error}");
        assert!(scene.issuer.of("/token").is_empty() && !scene.file.exists(), "{what}");
        let registers = what.contains("registration") || what.contains("a client");
        assert_eq!(scene.issuer.of("/register").len(), usize::from(registers), "{what}");
    }
}

#[tokio::test]
async fn nobody_is_believed_whom_the_operator_did_not_confirm() {
    let scene = Scene::good();
    let error = scene.begin(LoginTerms { issuer: None, ..scene.terms() }).await.err().unwrap();
    assert!(
        matches!(&error, LoginError::Unconfirmed(all) if *all == [scene.issuer.url("")]),
        "{error}"
    );
    assert!(scene.issuer.seen().is_empty(), "it is not even asked");
    let near = format!("{}/", scene.issuer.url(""));
    let error =
        scene.begin(LoginTerms { issuer: Some(near), ..scene.terms() }).await.err().unwrap();
    assert!(matches!(error, LoginError::OtherIssuer(..)), "{error}");
    let closed = LoginTerms { register: false, ..scene.terms() };
    let error = scene.begin(closed).await.err().unwrap();
    assert!(matches!(error, LoginError::NoClient), "{error}");
}

#[tokio::test]
async fn an_answer_counts_only_for_its_request_and_from_its_issuer() {
    let scene = Scene::good();
    let silent = scene.begin(scene.terms()).await.unwrap();
    let state = query(silent.url(), "state").unwrap();
    let own = portcullis_egress::Target::parse("https://x.example/").unwrap();
    let own = own.with_query(&[("iss", silent.issuer())]).split_once('?').unwrap().1.to_owned();
    let named = Scene::new(|_, issuer, _| {
        issuer.edit(METADATA, |d| {
            drop(d.insert("authorization_response_iss_parameter_supported", true))
        });
    });
    let naming = named.begin(named.terms()).await.unwrap();
    let its = query(naming.url(), "state").unwrap();
    let check = |answer: &str, expected: Result<&str, AnswerError>| {
        let read = silent.read(answer);
        assert_eq!(read.as_ref().map(|code| code.as_str()), expected.as_ref().copied(), "{answer}");
    };
    check(&format!("code=c&state={state}"), Ok("c"));
    check(&format!("code=c&state={state}&{own}"), Ok("c"));
    check("code=c", Err(AnswerError::State));
    check(&format!("code=c&state={its}"), Err(AnswerError::State));
    check(&format!("code=c&state={state}x"), Err(AnswerError::State));
    check(
        &format!("code=c&state={state}&iss=https%3A%2F%2Fevil.example"),
        Err(AnswerError::Issuer),
    );
    check(&format!("code=c&state={state}&{own}%2F"), Err(AnswerError::Issuer));
    check(
        &format!("error=access_denied&state={state}&iss=https%3A%2F%2Fevil.example"),
        Err(AnswerError::Issuer),
    );
    check(
        &format!("error=access_denied&state={state}"),
        Err(AnswerError::Refused("access_denied")),
    );
    check(&format!("error=canary&state={state}"), Err(AnswerError::Refused("another reason")));
    check(&format!("code=c&code=d&state={state}"), Err(AnswerError::Odd));
    check(&format!("code=c&state={state}&state={state}"), Err(AnswerError::Odd));
    check(&format!("code=&state={state}"), Err(AnswerError::NoCode));
    check(&"x".repeat(9_000), Err(AnswerError::Odd));
    // Who says that it names itself has to.
    assert_eq!(naming.read(&format!("code=c&state={its}")).err(), Some(AnswerError::Issuer));
    assert!(scene.issuer.of("/token").is_empty());
}

#[tokio::test]
async fn a_token_endpoint_that_errs_leaves_no_token() {
    for (what, answer, expected) in [
        ("a redirect", to("https://evil.example/"), "redirect"),
        ("no end", giant(), "longer than 65536 bytes"),
        ("no token", text("{}"), "cannot be used"),
        (
            "another kind",
            text("{\"access_token\":\"canary-token\",\"token_type\":\"mac\"}"),
            "cannot be used",
        ),
        (
            "a refusal",
            (400, String::new(), "{\"error\":\"invalid_grant\"}".to_owned()),
            "`invalid_grant`",
        ),
        ("a failure", (500, String::new(), String::new()), "status 500"),
    ] {
        let scene = Scene::new(|_, issuer, _| issuer.at("/token", answer));
        let error = scene.log_in(scene.terms()).await.expect_err(what).to_string();
        assert!(error.contains(expected) && !error.contains("canary"), "{what}: {error}");
        assert_eq!(scene.issuer.of("/token").len(), 1, "{what}: a code is traded once");
        assert!(!scene.file.exists(), "{what}");
    }
}

#[tokio::test]
async fn metadata_are_found_at_the_places_of_the_protocol() {
    // Without a word from the server: with its path, then without. That of all the origin the operator says.
    let scene = Scene::new(|server, _, own| {
        server.at("/mcp", (0, String::new(), "access-token-1".to_owned()));
        let document = server.fixed.remove(PRM).unwrap();
        server.at(ROOT_PRM, document);
        server.edit(ROOT_PRM, |d| drop(d.insert("resource", own)));
    });
    let resource = Some(scene.server.url(""));
    scene.log_in(LoginTerms { resource, ..scene.terms() }).await.unwrap();
    let places: Vec<_> = scene
        .server
        .seen()
        .into_iter()
        .map(|seen| seen.path)
        .filter(|path| path != "/mcp")
        .collect();
    assert_eq!(places, [PRM, ROOT_PRM]);
    assert_eq!(scene.issuer.of("/token")[0].field("resource"), Some(scene.server.url("")));
    // What the operator says that the server calls itself.
    let scene = Scene::new(|server, _, own| server.edit(PRM, |d| drop(d.insert("resource", own))));
    let resource = Some(scene.server.url(""));
    assert!(scene.begin(LoginTerms { resource, ..scene.terms() }).await.is_ok());
}

#[tokio::test]
async fn clients_are_chosen_and_prove_themselves_as_the_issuer_takes_it() {
    let auths = |auth: &'static str| {
        move |_: &mut Plan, issuer: &mut Plan, _: &str| {
            issuer.edit(METADATA, |d| {
                d.insert("token_endpoint_auth_methods_supported", vec![auth.into()]);
                d.insert("client_id_metadata_document_supported", true);
            });
            let answer = format!(
                "{{\"client_id\":\"c 1\",\"client_secret\":\"canary-secret\",\"token_endpoint_auth_method\":\"{auth}\"}}"
            );
            issuer.at("/register", text(&answer));
        }
    };
    let basic = |id: &str, secret: &str| {
        format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"))
        )
    };
    // It registers, with what the issuer takes, and keeps the secret that it got.
    let scene = Scene::new(auths("client_secret_basic"));
    scene.log_in(scene.terms()).await.unwrap();
    let traded = &scene.issuer.of("/token")[0];
    assert_eq!(traded.header("authorization"), Some(basic("c+1", "canary-secret").as_str()));
    assert_eq!(traded.field("client_secret"), None);
    let registered = &scene.issuer.of("/register")[0].body;
    assert!(
        registered.contains(r#""application_type":"native""#)
            && registered.contains("refresh_token"),
        "{registered}"
    );
    assert!(std::fs::read_to_string(&scene.file).unwrap().contains("canary-secret"));
    let scene = Scene::new(auths("client_secret_post"));
    scene.log_in(scene.terms()).await.unwrap();
    let traded = &scene.issuer.of("/token")[0];
    assert_eq!(traded.field("client_secret").as_deref(), Some("canary-secret"));
    assert_eq!(traded.header("authorization"), None);

    // The operator's own client goes first, and its secret stays where they keep it.
    let scene = Scene::new(auths("client_secret_basic"));
    let secret = || Secret::new("operators-secret".to_owned()).unwrap();
    let client = Some(("mine".to_owned(), Some(secret())));
    scene.log_in(LoginTerms { client, ..scene.terms() }).await.unwrap();
    let traded = &scene.issuer.of("/token")[0];
    assert_eq!(traded.header("authorization"), Some(basic("mine", "operators-secret").as_str()));
    assert!(!std::fs::read_to_string(&scene.file).unwrap().contains("operators-secret"));
    assert!(scene.issuer.of("/register").is_empty());
    let without = scene.connect(None).await.err().unwrap();
    assert!(without.contains("needs a secret"), "{without}");
    assert!(scene.connect(Some(secret())).await.is_ok());

    // Then the document that describes it, where the issuer reads such.
    let scene = Scene::new(auths("none"));
    let document = Some("https://me.example/client.json".to_owned());
    let asked = scene.begin(LoginTerms { document, ..scene.terms() }).await.unwrap();
    assert_eq!(query(asked.url(), "client_id").as_deref(), Some("https://me.example/client.json"));
    assert!(scene.issuer.of("/register").is_empty());
}

#[tokio::test]
async fn scopes_are_those_that_are_wanted_and_with_more_those_of_before() {
    let scene = Scene::new(|_, issuer, _| {
        issuer
            .edit(METADATA, |d| drop(d.insert("scopes_supported", vec!["offline_access".into()])));
    });
    let asked = scene.begin(scene.terms()).await.unwrap();
    assert_eq!(query(asked.url(), "scope").as_deref(), Some("pay:read offline_access"));
    let former_scope = Some("old:one pay:read".to_owned());
    let asked = scene.begin(LoginTerms { former_scope, ..scene.terms() }).await.unwrap();
    assert_eq!(query(asked.url(), "scope").as_deref(), Some("pay:read old:one offline_access"));
    let scope = Some("mine".to_owned());
    let asked = scene.begin(LoginTerms { scope, ..scene.terms() }).await.unwrap();
    assert_eq!(query(asked.url(), "scope").as_deref(), Some("mine offline_access"));
    // What would be too much together is not fewer, and not all.
    let many = |from: u32| Some((from..from + 40).map(|n| format!("{n} ")).collect::<String>());
    let terms = LoginTerms { scope: many(0), former_scope: many(40), ..scene.terms() };
    assert!(matches!(scene.begin(terms).await.err().unwrap(), LoginError::Scopes));
    let terms = LoginTerms { scope: Some("a\tb".to_owned()), ..scene.terms() };
    assert!(matches!(scene.begin(terms).await.err().unwrap(), LoginError::Scopes));
}

#[tokio::test]
async fn a_refresh_token_is_shown_once_and_rotates_for_all_who_share_the_file() {
    let scene = Scene::new(|_, issuer, _| {
        let second = tokens("access-token-1", "refresh-token-2");
        issuer
            .once
            .insert("/token".to_owned(), vec![tokens("access-token-0", "refresh-token-1"), second]);
        issuer.at("/token", (400, String::new(), "{\"error\":\"invalid_grant\"}".to_owned()));
    });
    scene.log_in(scene.terms()).await.unwrap();
    // The server does not take the first token, so that the next use gets another one; the other client finds it.
    let refused = scene.connect(None).await.err().unwrap();
    assert!(refused.contains("401") && refused.contains("`portcullis login bank`"), "{refused}");
    scene.clock.advance(Duration::from_secs(3_600));
    let (one, other) = tokio::join!(scene.connect(None), scene.connect(None));
    assert!(one.is_ok() && other.is_ok(), "{:?} {:?}", one.err(), other.err());
    let shown: Vec<_> =
        scene.issuer.of("/token").iter().filter_map(|seen| seen.field("refresh_token")).collect();
    assert_eq!(shown, ["refresh-token-1"]);
    let resources: Vec<_> =
        scene.issuer.of("/token").iter().filter_map(|seen| seen.field("resource")).collect();
    assert_eq!(resources, [scene.server.url("/mcp"), scene.server.url("/mcp")]);
    assert!(std::fs::read_to_string(&scene.file).unwrap().contains("refresh-token-2"));
    // And when it is not taken any more, that is said with what a person runs.
    scene.clock.advance(Duration::from_secs(3_600));
    let ended = scene.connect(None).await.err().unwrap();
    assert!(
        ended.contains("`invalid_grant`") && ended.contains("run `portcullis login bank`"),
        "{ended}"
    );
    assert!(!ended.contains("refresh-token"), "{ended}");
}

#[tokio::test]
async fn a_token_goes_to_the_server_of_its_login_and_to_no_other() {
    let (scene, other) = (Scene::good(), Scene::good());
    scene.log_in(scene.terms()).await.unwrap();
    std::fs::copy(&scene.file, &other.file).unwrap();
    let refused = other.connect(None).await.err().unwrap();
    assert!(refused.contains("another login's"), "{refused}");
    assert!(other.server.seen().is_empty() && other.issuer.seen().is_empty());

    // A file that was made another login's while it was in use refreshes nothing.
    let session = scene.connect(None).await.unwrap();
    let text = std::fs::read_to_string(&scene.file).unwrap();
    let evil =
        text.replace(&format!("{}/token", scene.issuer.at), &format!("{}/token", other.issuer.at));
    assert_ne!(text, evil);
    std::fs::write(&scene.file, evil).unwrap();
    scene.clock.advance(Duration::from_secs(3_600));
    let refused = session.list().await.unwrap_err().to_string();
    assert!(refused.contains("another login's"), "{refused}");
    assert!(other.issuer.seen().is_empty());
}

#[tokio::test]
async fn a_client_that_the_operator_named_is_the_one_for_as_long_as_the_file_is_used() {
    let scene = Scene::good();
    scene.log_in(scene.terms()).await.unwrap();
    let other = scene.connect_as(None, Some("client-2")).await.err().unwrap();
    assert!(other.contains("another login's"), "{other}");
    let named = scene.connect_as(None, Some("client-1")).await.unwrap();
    let registered = scene.connect(None).await.unwrap();
    let text = std::fs::read_to_string(&scene.file).unwrap();
    let anew = text.replace("client-1", "client-2");
    assert_ne!(text, anew);
    std::fs::write(&scene.file, anew).unwrap();
    scene.clock.advance(Duration::from_secs(3_600));
    let refused = named.list().await.unwrap_err().to_string();
    assert!(refused.contains("another login's"), "{refused}");
    assert_eq!(scene.issuer.of("/token").len(), 1, "it is not asked for a token");
    // Who registers is another client after each login.
    registered.list().await.unwrap();
    let refreshed = &scene.issuer.of("/token")[1];
    assert_eq!(refreshed.field("client_id").as_deref(), Some("client-2"));
}

#[tokio::test]
async fn a_login_that_gets_no_second_token_ends_with_the_first() {
    let scene = Scene::new(|_, issuer, _| {
        issuer.at("/token", text("{\"access_token\":\"access-token-1\",\"token_type\":\"bearer\",\"expires_in\":3600}"));
    });
    scene.log_in(scene.terms()).await.unwrap();
    assert!(scene.connect(None).await.is_ok());
    scene.clock.advance(Duration::from_secs(3_600));
    let ended = scene.connect(None).await.err().unwrap();
    assert!(
        ended.contains("has ended") && ended.contains("run `portcullis login bank`"),
        "{ended}"
    );
}

//! Every form of `if_cfg_api_versions!`, where callers use it: items, expressions, statements.

use foundationdb_sys::if_cfg_api_versions;

if_cfg_api_versions! {min = 710 =>
    const KEPT: i32 = 1;
}
if_cfg_api_versions! {min = 510, max = 600 =>
    compile_error!("the version is not within 510..=600");
}
if_cfg_api_versions! {min = 740 =>
    compile_error!("the version is below 740");
}
if_cfg_api_versions! {max = 710 =>
    compile_error!("the version is above 710");
}

#[test]
fn bounds_are_inclusive() {
    assert_eq!(KEPT, 1);
    assert_eq!(if_cfg_api_versions!(min = 730 => { "kept" } else { "dropped" }), "kept");
    assert_eq!(if_cfg_api_versions!(max = 730 => { "kept" } else { "dropped" }), "kept");
    assert_eq!(if_cfg_api_versions!(min = 510, max = 740 => { "kept" } else { "dropped" }), "kept");
    assert_eq!(if_cfg_api_versions!(min = 740 => { "kept" } else { "dropped" }), "dropped");
    assert_eq!(if_cfg_api_versions!(max = 710 => { "kept" } else { "dropped" }), "dropped");
}

#[test]
fn several_statements_are_kept_or_dropped_together() {
    let mut seen = Vec::new();
    if_cfg_api_versions!(min = 700 =>
        seen.push("kept");
        seen.push("kept too")
    );
    if_cfg_api_versions!(max = 700 =>
        seen.push("dropped");
        seen.push("dropped too")
    );
    assert_eq!(seen, ["kept", "kept too"]);
}

#[test]
fn a_feature_of_the_caller_overrides_version_bounds() {
    // `default` is a feature of every package, and on in this test.
    assert_eq!(if_cfg_api_versions!(max = 600, feature = "default" => { "kept" } else { "dropped" }), "kept");
    let off = if_cfg_api_versions!(min = 740, feature = "fdb-7_4" => { "kept" } else { "dropped" });
    assert_eq!(off, "dropped");
}

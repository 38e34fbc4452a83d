//! The plugin as the host sees it.

use my_plugin::COMPONENT;

#[test]
fn it_is_named_as_declared() {
    assert_eq!(COMPONENT.name, "my-plugin");
}

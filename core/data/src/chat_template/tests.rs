//! Templates as models ship them -> texts, reasons and the bytes that are generated.

use std::fs;

use super::*;

/// A model's directory with these files.
fn model(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn of(source: &str) -> ChatTemplate {
    let directory = model(&[("t.jinja", source)]);
    let file = directory.path().join("t.jinja");
    let opened = ChatTemplate::open(directory.path(), file.to_str());
    opened.unwrap().unwrap()
}

fn turns() -> Vec<Message> {
    vec![
        Message::new("user", " héllo "),
        Message::new("assistant", "a\nb"),
    ]
}

fn rendered(source: &str) -> Result<String, String> {
    of(source)
        .render(&turns(), GenerationPrompt::Added)
        .map_err(|e| e.to_string())
}

#[test]
fn the_tokenizers_own_template_is_found_where_transformers_keeps_it() {
    let open = |directory: &tempfile::TempDir, choice| {
        let opened = ChatTemplate::open(directory.path(), choice).unwrap();
        opened.map(|template| {
            template
                .render(&turns(), GenerationPrompt::Omitted)
                .unwrap()
        })
    };
    let text = model(&[("tokenizer_config.json", r#"{"chat_template": "text"}"#)]);
    assert_eq!(open(&text, None).as_deref(), Some("text"));
    let list = r#"{"chat_template": [{"name": "rag", "template": "b"}, {"name": "default", "template": "a"}]}"#;
    let list = model(&[("tokenizer_config.json", list)]);
    assert_eq!(open(&list, Some("tokenizer")).as_deref(), Some("a"));
    assert_eq!(open(&list, Some("rag")).as_deref(), Some("b"));
    let file = model(&[
        ("chat_template.jinja", "file"),
        ("additional_chat_templates/tool_use.jinja", "tools"),
        ("tokenizer_config.json", r#"{"chat_template": "text"}"#),
    ]);
    assert_eq!(open(&file, None).as_deref(), Some("file"));
    assert_eq!(open(&file, Some("tool_use")).as_deref(), Some("tools"));
    assert_eq!(open(&model(&[]), None), None);
    let unknown = ChatTemplate::open(file.path(), Some("chatmll")).err();
    let message = unknown.expect("refused").to_string();
    assert!(message.contains("chatml, zephyr, or a file"), "{message}");
}

#[test]
fn special_tokens_are_strings_or_described() {
    let directory = model(&[
        (
            "tokenizer_config.json",
            r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#,
        ),
        (
            "chat_template.jinja",
            "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}",
        ),
    ]);
    let template = ChatTemplate::open(directory.path(), None).unwrap().unwrap();
    assert_eq!(
        template
            .render(&turns(), GenerationPrompt::Omitted)
            .unwrap(),
        "<s>|</s>|"
    );
}

#[test]
fn python_methods_and_blocks_work_as_in_jinja() {
    for (source, expected) in [
        ("{{ messages[0].content.strip().upper() }}", "HÉLLO"),
        ("{{ messages[0]['content'].split('l')[0] }}", " hé"),
        (
            "{%- for m in messages %}\n    {{ m.role }}\n{% endfor %}",
            "    user\n    assistant\n",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index0 %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        (
            "{{ messages[1:] | tojson }}",
            r#"[{"role": "assistant", "content": "a\nb"}]"#,
        ),
        (
            "{{ {'é': [1]} | tojson(indent=2) }}",
            "{\n  \"é\": [\n    1\n  ]\n}",
        ),
        (
            "{{ messages[-1].role in ['assistant'] and not messages[0].tool_calls is defined }}",
            "True",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        (
            "{% if strftime_now is defined %}now{% else %}then{% endif %}",
            "then",
        ),
        ("{% if add_generation_prompt %}go{% endif %}\n", "go"),
    ] {
        assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn what_a_template_raises_is_told_with_its_line() {
    let raised = rendered("\n{{ raise_exception('roles must alternate') }}").unwrap_err();
    assert!(
        raised.contains("roles must alternate (line 2 of the template)"),
        "{raised}"
    );
    for source in [
        "{{ nothing.content.strip() }}",
        "{{ 1 + 'a' }}",
        "{{ messages | unheard_of }}",
    ] {
        rendered(source).expect_err(source);
    }
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    let refused = rendered(endless).unwrap_err();
    assert!(
        refused.contains("more than 50000000 steps for a conversation (line 1 of"),
        "{refused}"
    );
    let directory = model(&[("chat_template.jinja", "{% if %}")]);
    let broken = ChatTemplate::open(directory.path(), None)
        .err()
        .expect("refused");
    assert!(broken.to_string().contains("line 1"), "{broken}");
}

#[test]
fn generation_tags_mark_bytes_and_change_no_text() {
    let source = "{% for m in messages %}\n{{- m.role }}:\n{%- if m.role == 'assistant' %}\n\
                  {% generation %}\n {{- m.content }}é.\n{%- endgeneration %}\n!{% endif %}{% endfor %}";
    let template = of(source);
    assert!(template.marks_generation() && !of("{{ generation }}").marks_generation());
    let text = template
        .render(&turns(), GenerationPrompt::Omitted)
        .unwrap();
    assert_eq!(text, "user:assistant:a\nbé.!");
    let marked = |turns: &[Message]| {
        let mut answers = template
            .answers(turns.into(), &[Job::marked(turns.len())])
            .unwrap();
        generated(&answers.remove(0).text())
    };
    let (unmarked, spans) = marked(&turns()).unwrap();
    assert_eq!(unmarked, text);
    assert_eq!((spans.len(), &spans[0]), (1, &(15..21)));
    assert_eq!(&text[spans[0].clone()], "a\nbé.");
    let refused = marked(&[Message::new("assistant", "a\u{FDD0}b")]).unwrap_err();
    assert!(refused.contains("noncharacter"), "{refused}");
}

#[test]
fn what_a_conversation_becomes_is_bounded_by_what_it_is() {
    let endless = rendered("\n{% for a in range(99999) %}{{ '1234567890' * 20 }}{% endfor %}");
    let refused = endless.unwrap_err();
    assert!(
        refused.contains("writes more than 1.0 MiB of text"),
        "{refused}"
    );
    let huge = rendered("{{ 'ab' * 9223372036854775807 }}");
    assert!(huge.is_err(), "{huge:?}");
}

#[test]
fn parts_of_a_conversation_are_told_by_their_length() {
    let template = of(
        "{% for m in messages %}<{{ m.content }}>{% endfor %}{% if add_generation_prompt %}<{% endif %}",
    );
    let turns: Vec<Message> = ["a", "bc", "d"]
        .map(|text| Message::new("user", text))
        .into();
    let jobs = [
        Job::text(3),
        Job::beginning(2).with_prompt(),
        Job::beginning(1),
        Job::beginning(3).with_prompt(),
    ];
    let mut answers = template
        .answers(turns[..].into(), &jobs)
        .unwrap()
        .into_iter();
    assert_eq!(answers.next().unwrap().text(), "<a><bc><d>");
    let beginnings: Vec<_> = answers.map(Answer::beginning).collect();
    assert_eq!(beginnings, [Some(8), Some(3), None]);
}

//! The keys of `[data]`: defaults, refused values and unknown keys.

use super::*;

fn refused(change: impl FnOnce(&mut DataOptions)) -> String {
    let mut options = DataOptions::default();
    change(&mut options);
    options.validate().expect_err("refused").to_string()
}

#[test]
fn defaults_are_valid_and_those_of_the_manual() {
    let options: DataOptions = toml::from_str("").unwrap();
    options.validate().unwrap();
    assert_eq!(options, DataOptions::default());
    assert_eq!(
        (options.max_seq_len, options.batch_size, options.micro_batch),
        (2048, 8, 1)
    );
    assert!(options.shuffle);
}

#[test]
fn every_key_is_read_and_an_unknown_one_refused() {
    let text = r#"
            files = ["a.jsonl"]
            eval_split = 10
            split_seed = 7
            format = "text"
            fields = { text = "content" }
            max_seq_len = 64
            too_long = "drop"
            max_lost = 0.25
            batch_size = 4
            micro_batch = 2
            pack_tokens = 128
            train_on = "all"
            on_bad_row = "drop"
            on_empty = "train"
            tools = "ignore"
            cache_dir = "cache"
            shuffle = false
        "#;
    let options: DataOptions = toml::from_str(text).unwrap();
    options.validate().unwrap();
    assert_eq!(options.eval_split, Some(10.0));
    assert_eq!(options.too_long, TooLong::Drop);
    let back: DataOptions = toml::from_str(&toml::to_string(&options).unwrap()).unwrap();
    assert_eq!(options, back);
    assert!(toml::from_str::<DataOptions>("max_sequence = 3").is_err());
    assert!(toml::from_str::<DataOptions>("format = \"csv\"").is_err());
}

#[test]
fn unusable_values_name_their_key() {
    assert!(refused(|o| o.batch_size = 0).contains("batch_size"));
    assert!(refused(|o| o.micro_batch = 0).contains("micro_batch"));
    assert!(refused(|o| o.max_seq_len = 1).contains("max_seq_len"));
    assert!(refused(|o| o.max_seq_len = usize::MAX).contains("max_seq_len"));
    assert!(refused(|o| o.pack_tokens = Some(0)).contains("pack_tokens"));
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(refused(|o| o.max_lost = share).contains("max_lost"));
    }
    for split in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        assert!(refused(|o| o.eval_split = Some(split)).contains("eval_split"));
    }
    let both = refused(|o| {
        o.eval_split = Some(0.1);
        o.eval_files = vec!["b.jsonl".into()];
    });
    assert!(both.contains("eval_files"), "{both}");
    let typo = refused(|o| {
        o.fields.insert("txt".into(), "content".into());
    });
    assert!(typo.contains("txt") && typo.contains("`text`"), "{typo}");
}

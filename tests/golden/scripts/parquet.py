"""Rows -> parquet files as the ecosystem's writer makes them, sound ones and some that cannot be read.

Usage: parquet.py OUT    writes OUT/parquet/; needs pyarrow
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CHATS = [
    [{"role": "user", "content": "Grüße?"}, {"role": "assistant", "content": "Hallo!\n"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}],
] * 30
IDS = [[5, 6, 7], [8, 9], [10, 11, 12, 13]] * 40
LABELS = [[-100, 6, 7], None, [-100, -100, 12, 13]] * 40


def main():
    out = Path(sys.argv[1]) / "parquet"
    out.mkdir(parents=True, exist_ok=True)

    def write(name, columns, **options):
        pq.write_table(pa.table(columns), out / name, **options)

    # Other columns, a type that no row uses among them, must not matter.
    days = pa.array([19_000] * len(CHATS), pa.date32())
    write("chat.parquet", {"day": days, "messages": CHATS}, compression="snappy", row_group_size=7)
    ids = {"input_ids": pa.array(IDS, pa.list_(pa.int32())), "labels": pa.array(LABELS, pa.list_(pa.int64()))}
    write("ids.parquet", ids, compression="gzip", row_group_size=50)
    write("text.parquet", {"text": ["one", "two", "three"]}, compression="none")
    write("nulls.parquet", {"text": ["one", None, "three"]})
    write("numbers.parquet", {"text": [1.5, 2.5]})
    write("zstd.parquet", {"text": ["one"]}, compression="zstd")


main()

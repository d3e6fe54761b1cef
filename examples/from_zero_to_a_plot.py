"""From zero to a plot: a broker, a day of orders, an archive, a question, an answer to look at.

    pip install 'warrenmq[spark]' pika
    python examples/from_zero_to_a_plot.py            # writes shop/orders.html

The cells (# %%) run one after the other in an editor that knows them, or all at once as a script.
Nothing is needed beside Java 17: the broker lives in this process and ends with it.
"""

# %% What we need
from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

import pika

from warren.spark.pipelines import report
from warren.spark.pipelines.archive import Lake, run_archive
from warren.spark.pipelines.session import open_session
from warren.testing import Broker

asked = argparse.ArgumentParser(description=__doc__)
asked.add_argument("--orders", type=int, default=5_000)
asked.add_argument("--to", default="shop", help="where the archive and the plot go")
given = asked.parse_args()
place = Path(given.to).absolute()
place.mkdir(parents=True, exist_ok=True)

# %% A broker in this process, with its HTTP API, which keeps its messages on the disk
data = tempfile.TemporaryDirectory(prefix="warren-example")
broker = Broker(http=True, data_dir=data.name).start()
print(f"a broker at {broker.url}, its web UI at {broker.http_url}")

# %% Publish: each order is JSON, and waits for the broker's word that it is safe
connection = pika.BlockingConnection(pika.URLParameters(broker.url))
channel = connection.channel()
channel.confirm_delivery()
channel.exchange_declare("shop", "topic", durable=True)
channel.queue_declare("orders", durable=True)
channel.queue_bind("orders", "shop", "order.#")
kept = pika.BasicProperties(delivery_mode=2, content_type="application/json")
dice = random.Random(7)
for number in range(given.orders):
    hour = min(23, max(0, int(dice.gauss(15, 4))))
    order = {
        "id": number,
        "hour": hour,
        "country": dice.choices(["fr", "de", "jp"], [5, 3, 2])[0],
        "total": round(dice.lognormvariate(3, 0.6), 2),
    }
    channel.basic_publish("shop", f"order.{order['country']}", json.dumps(order).encode(), kept)
# Nobody would answer this connection's heartbeats while Spark works.
connection.close()
print(f"{broker.queue('orders').ready:,} orders wait in the queue")

# %% Archive: the queue becomes Parquet files by day, each message once; consumers get theirs too
spark = open_session("example", "1g", 2)
lake = Lake(place / "lake")
options = {"endpoints": broker.http_url, "queues": "orders", "cursor": "archive"}
rows = run_archive(spark, options, lake, follow=False, interval_s=1)
print(f"{rows:,} rows in {lake.data}")

# %% Ask: bodies become columns, and the rest is SQL
orders = (
    spark.read.parquet(str(lake.data))
    .selectExpr(
        "seq",
        "routing_key",
        "from_json(cast(body AS string), 'id long, hour int, country string, total double') o",
    )
    .select("seq", "routing_key", "o.*")
)
orders.createOrReplaceTempView("orders")
by_hour = spark.sql("""
    SELECT hour, country, count(*) AS n, sum(total) AS total
    FROM orders GROUP BY hour, country ORDER BY hour, country
""").collect()
whole = spark.sql("SELECT count(*) n, count(DISTINCT seq) d, sum(total) t FROM orders").collect()[0]
assert whole["n"] == whole["d"] == given.orders, "each order is there once"

# %% Look: one HTML file with everything in it
countries = sorted({row["country"] for row in by_hour})
hours = range(24)
values = {(row["hour"], row["country"]): row for row in by_hour}
sold = [
    [float(values[hour, one]["total"]) if (hour, one) in values else 0.0 for hour in hours]
    for one in countries
]
counts = [sum(row["n"] for row in by_hour if row["country"] == one) for one in countries]
page = report.page(
    "A day of orders",
    f"{given.orders:,} messages, published, archived and asked by examples/from_zero_to_a_plot.py.",
    f"{whole['n']:,} orders, {whole['t']:,.2f} in all",
    True,
    [
        report.section(
            "Sold by hour",
            "A line for each country.",
            report.lines(countries, [f"{hour:02d}:00" for hour in hours], sold),
        ),
        report.section(
            "Orders by country", "Messages.", report.bars(countries, [float(n) for n in counts])
        ),
    ],
)
plot = place / "orders.html"
plot.write_text(page)
print(f"the plot: {plot}")

# %% The end: what was archived stays, the broker goes
spark.stop()
broker.stop()
data.cleanup()

"""Jobs on what the broker's queues and event journals hold; `warren pipeline --help` lists them.

They import nothing of the broker: `spark-submit --py-files warren.zip` with
`warren/spark/pipelines/__main__.py` runs the same on any cluster.
"""

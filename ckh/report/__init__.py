"""Reports: figures of datasets, runs, searches and models, as one page or as files."""

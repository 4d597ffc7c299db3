"""Reports for people, as pages and files, made from the tables of the pipeline."""

"""Reports: from the records of finished runs to tables, figures and pages. Reads records, never a model."""

"""Where data comes from: downloads with checksums, texts, trees, word vectors, labelled sequences, vocabularies."""

package packages

// HasReadAlmostAll makes as if the documents of a gateway had its largest size, so that a test
// need not send them.
func HasReadAlmostAll(g *Gateway) { g.read.Store(maxDocuments) }

// HasKeptAlmostAll makes as if the lists of a gateway had their largest number of files.
func HasKeptAlmostAll(g *Gateway) { g.kept.Store(maxKept) }

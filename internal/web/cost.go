package web

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Bounds of a page that becomes markdown. Of a page above them the text is returned.
//
// The libraries that find the article and write it have no bounds of their own, nor can
// they be stopped. For each element they read all text in it, so text costs as much as
// elements are around it. Each list and each quotation indents all lines in it, which were
// indented before by those in it. A table is filled up to a rectangle, and a merged cell is
// written into each place that it covers.
const (
	maxElements = 30_000     // markdown takes up to 20 µs for each
	maxCost     = 32_000_000 // about 0.5 s in all
	maxCells    = 50_000     // of all tables
)

// affordable reports whether a page is within the bounds. It takes the spans from cells of
// tables that are too large only because of them.
func affordable(doc *html.Node) bool {
	elements := 0
	for range doc.Descendants() {
		if elements++; elements > maxElements {
			return false
		}
	}
	var c costs
	return c.add(doc, 1, 1)
}

// costs adds up what a page would cost.
type costs struct{ total, cells int }

// add adds a node with all in it. depth is the number of elements around it, and indents the
// number of those that indent. It returns false, and does not go on, above a bound. The
// parser refuses pages of more than 512 levels.
func (c *costs) add(n *html.Node, depth, indents int) bool {
	size := 64 + len(n.Data)
	for _, a := range n.Attr {
		size += len(a.Val)
	}
	lines := 1 + strings.Count(n.Data, "\n")
	c.total += size*depth + 2*lines*indents*indents
	switch n.DataAtom { //nolint:exhaustive // the others do neither
	case atom.Ul, atom.Ol, atom.Li, atom.Blockquote:
		indents++
	case atom.Table:
		c.cells += cellsOf(n)
	}
	if c.total > maxCost || c.cells > maxCells {
		return false
	}
	for d := range n.ChildNodes() {
		if !c.add(d, depth+1, indents) {
			return false
		}
	}
	return true
}

// cellsOf returns how many cells a table has when it is filled up to a rectangle. It removes
// the spans of its cells if these would make too many.
func cellsOf(table *html.Node) int {
	n := rectangle(table)
	if n <= maxCells {
		return n
	}
	for d := range table.Descendants() {
		d.Attr = slices.DeleteFunc(d.Attr, func(a html.Attribute) bool { return a.Key == "colspan" || a.Key == "rowspan" })
	}
	return rectangle(table)
}

// rectangle returns the most cells that a table can have when it is filled up. A cell that
// covers further rows moves what they have to the right. The cells of tables in it count,
// too.
func rectangle(table *html.Node) int {
	rows, columns, row, down, moved, covered := 0, 0, 0, 0, 0, 0
	for n := range table.Descendants() {
		switch n.DataAtom { //nolint:exhaustive // only rows and cells
		case atom.Tr:
			rows, row = rows+1, 0
		case atom.Td, atom.Th:
			wide, high := span(n, "colspan"), span(n, "rowspan")
			row += wide
			covered += wide * high
			columns = max(columns, row)
			if high > 1 {
				down, moved = max(down, high), moved+wide
			}
		}
	}
	return max(covered, (rows+down)*(columns+moved))
}

// span returns how many columns or rows a cell covers, or more than maxCells.
func span(cell *html.Node, name string) int {
	n, err := strconv.Atoi(attribute(cell, name))
	if errors.Is(err, strconv.ErrRange) || n > maxCells {
		return maxCells + 1
	}
	return max(n, 1)
}

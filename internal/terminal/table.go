package terminal

import (
	"slices"
	"strings"
)

const (
	gap       = 2 // columns between two columns of a table
	narrowest = 4 // columns of a table are not made narrower
	breaks    = "_,/:;.=-"
)

// Wrap breaks text into lines of at most width columns: at spaces, else after punctuation,
// else anywhere. A width of 0 breaks nothing.
func Wrap(text string, width int) []string {
	if width <= 0 || Columns(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	put := func(piece string) {
		if Columns(line)+Columns(strings.TrimRight(piece, " ")) <= width {
			line += piece
			return
		}
		if line = strings.TrimRight(line, " "); line != "" {
			lines = append(lines, line)
		}
		parts := chop(piece, width)
		lines = append(lines, parts[:len(parts)-1]...)
		line = parts[len(parts)-1]
	}
	for word := range strings.SplitAfterSeq(text, " ") {
		if Columns(strings.TrimRight(word, " ")) <= width {
			put(word)
			continue
		}
		for _, piece := range pieces(word) {
			put(piece)
		}
	}
	return append(lines, strings.TrimRight(line, " "))
}

// pieces splits a word after each punctuation mark.
func pieces(word string) []string {
	var all []string
	for {
		i := strings.IndexAny(word, breaks)
		if i < 0 || i == len(word)-1 {
			return append(all, word)
		}
		all, word = append(all, word[:i+1]), word[i+1:]
	}
}

// Table lays out rows in columns for a terminal of a width, and wraps the cells of columns
// that do not fit. A width of 0 wraps nothing. A cell is one line of printable text, which
// may have colors. The lines end without spaces.
func Table(rows [][]string, width int) []string {
	widths := fit(natural(rows), width)
	var lines []string
	for _, row := range rows {
		cells := make([][]string, len(row))
		height := 0
		for i, c := range row {
			w := widths[i]
			if width <= 0 {
				w = 0
			}
			cells[i] = Wrap(c, w)
			height = max(height, len(cells[i]))
		}
		for n := range height {
			lines = append(lines, joined(cells, widths, n))
		}
	}
	return lines
}

// joined returns line n of the cells of a row.
func joined(cells [][]string, widths []int, n int) string {
	var line strings.Builder
	for i, c := range cells {
		text := ""
		if n < len(c) {
			text = c[n]
		}
		line.WriteString(text)
		if i < len(cells)-1 {
			line.WriteString(strings.Repeat(" ", max(widths[i]-Columns(text), 0)+gap))
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// natural returns the width of each column that wraps nothing.
func natural(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(c))
		}
	}
	return widths
}

// fit narrows the widest columns until all fit into a width together. A width of 0 fits
// everything.
func fit(widths []int, width int) []int {
	left := width - gap*(len(widths)-1)
	if width <= 0 || sum(widths) <= left {
		return widths
	}
	order := make([]int, len(widths)) // narrow columns first, so that they keep their width
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return widths[a] - widths[b] })
	fitted := make([]int, len(widths))
	for n, i := range order {
		share := left / (len(order) - n)
		fitted[i] = max(min(widths[i], share), min(widths[i], narrowest))
		left -= fitted[i]
	}
	return fitted
}

func sum(list []int) int {
	n := 0
	for _, v := range list {
		n += v
	}
	return n
}

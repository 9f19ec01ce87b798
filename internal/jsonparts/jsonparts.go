// Package jsonparts measures JSON before it is decoded. Decoded, small values take many times the
// bytes of their text.
package jsonparts

import "bytes"

// Count counts the members, elements and brackets of JSON. It accepts any text.
func Count(text []byte) (n int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '[', '{':
			n++
		case '"':
			i = closing(text, i)
		}
	}
	return n
}

// closing returns the place of the quote that closes the string that begins at i.
func closing(text []byte, i int) int {
	for i++; ; i++ {
		next := bytes.IndexByte(text[min(i, len(text)):], '"')
		if next < 0 {
			return len(text)
		}
		i += next
		escapes := i
		for text[escapes-1] == '\\' {
			escapes--
		}
		if (i-escapes)%2 == 0 {
			return i
		}
	}
}

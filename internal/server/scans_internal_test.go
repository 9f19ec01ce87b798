package server

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/jpeg"
	"image/png"
	"testing"
)

// progressive returns a gray JPEG of scans that say that no block of the picture changes. Such
// a scan takes some bytes, and the decoder visits each block for it.
func progressive(side, scans int) []byte {
	var b bytes.Buffer
	segment := func(marker byte, data ...byte) {
		b.Write([]byte{0xff, marker})
		_ = binary.Write(&b, binary.BigEndian, uint16(len(data)+2))
		b.Write(data)
	}
	b.Write([]byte{0xff, 0xd8})
	segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	segment(0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)
	table := append([]byte{0x10, 1}, make([]byte, 15)...)
	segment(0xc4, append(table, 0xe0)...) // the code 0: a run of 16,384 blocks and as many more as 14 bits say
	blocks := (side + 7) / 8 * ((side + 7) / 8)
	bits := "" // each code with 14 ones: 32,767 blocks
	for n := 0; n < blocks; n += 32767 {
		bits += "011111111111111"
	}
	for len(bits)%8 != 0 {
		bits += "1"
	}
	var runs []byte
	for i := 0; i < len(bits); i += 8 {
		v := byte(0)
		for _, c := range bits[i : i+8] {
			v = v<<1 | byte(c-'0')
		}
		if runs = append(runs, v); v == 0xff {
			runs = append(runs, 0)
		}
	}
	for range scans {
		segment(0xda, 1, 1, 0, 1, 1, 0)
		b.Write(runs)
	}
	b.Write([]byte{0xff, 0xd9})
	return b.Bytes()
}

// TestPicturesOfManyScans: a JPEG whose scans would keep the decoder busy for minutes is not
// decoded, and one of as many as encoders write is.
func TestPicturesOfManyScans(t *testing.T) {
	if _, err := jpeg.Decode(bytes.NewReader(progressive(64, 200))); err != nil {
		t.Fatalf("the picture of the test: %v", err)
	}
	s := &Server{decoding: make(chan struct{}, 1)}
	pad := make([]byte, maxPictureBytes) // behind the end, so that the picture has to become smaller
	for scans, want := range map[int]bool{10: true, maxScans + 1: false} {
		left := maxDecoded
		p := s.picture(t.Context(), "image/jpeg", append(progressive(64, scans), pad...), &left)
		if (p != nil) != want {
			t.Errorf("%d scans: shown %v, want %v", scans, p != nil, want)
		}
	}
}

// TestPixelsOfAnAnswer: what is decoded for an answer is bounded, and a color of 16 bits counts
// twice.
func TestPixelsOfAnAnswer(t *testing.T) {
	s := &Server{decoding: make(chan struct{}, 1)}
	encoded := func(img image.Image) []byte {
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	gray, deep := encoded(image.NewGray(image.Rect(0, 0, maxPictureSide+1, 100))), encoded(image.NewGray16(image.Rect(0, 0, maxPictureSide+1, 100)))
	const pixels = (maxPictureSide + 1) * 100
	left := 4 * pixels
	for i, c := range []struct {
		data  []byte
		shown bool
		left  int
	}{{gray, true, 3 * pixels}, {deep, true, pixels}, {deep, false, pixels}, {gray, true, 0}, {gray, false, 0}} {
		if p := s.picture(t.Context(), "image/png", c.data, &left); (p != nil) != c.shown || left != c.left {
			t.Errorf("picture %d: shown %v with %d pixels left, want %v with %d", i, p != nil, left, c.shown, c.left)
		}
	}
	small := encoded(image.NewGray(image.Rect(0, 0, 10, 10))) // is not decoded
	if p := s.picture(t.Context(), "image/png", small, &left); p == nil || left != 0 {
		t.Error("a small picture was not shown")
	}
}

// TestLongPictures: a picture with a very long side is not decoded, even if it has few pixels. Without this bound, a PNG
// of 76 KB with 39 million rows of one pixel took 2.5 GB and 19 s.
func TestLongPictures(t *testing.T) {
	s := &Server{decoding: make(chan struct{}, 1)}
	for _, c := range []struct {
		width, height int
		shown         bool
	}{{1, maxDecodedSide + 1, false}, {maxDecodedSide + 1, 1, false}, {1, maxDecodedSide, true}, {maxDecodedSide, 1, true}} {
		var b bytes.Buffer
		if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, c.width, c.height))); err != nil {
			t.Fatal(err)
		}
		left := maxDecoded
		if p := s.picture(t.Context(), "image/png", b.Bytes(), &left); (p != nil) != c.shown {
			t.Errorf("%d x %d pixels: shown %v, want %v", c.width, c.height, p != nil, c.shown)
		}
	}
}

// TestMemoryOfPictures: a picture counts with what its decoder holds, not with its pixels alone. A
// progressive JPEG of 40 million pixels and 312 KB took 820 MB.
func TestMemoryOfPictures(t *testing.T) {
	s := &Server{decoding: make(chan struct{}, 1)}
	pad := make([]byte, maxPictureBytes)
	for _, c := range []struct {
		name   string
		data   []byte
		weight int
	}{
		{"progressive gray", progressive(1000, 1), 2},
		{"progressive color", progressiveColor(1000, 3), 4},
		{"progressive CMYK", progressiveColor(1000, 4), 6},
	} {
		left := maxDecoded
		if s.picture(t.Context(), "image/jpeg", append(c.data, pad...), &left); maxDecoded-left != c.weight*1000*1000 {
			t.Errorf("%s: counted as %d pixels, want %d", c.name, maxDecoded-left, c.weight*1000*1000)
		}
	}
	const side = 6000 // 36 million pixels
	left := maxDecoded
	if p := s.picture(t.Context(), "image/jpeg", append(progressiveColor(side, 4), pad...), &left); p != nil || left != maxDecoded {
		t.Errorf("a progressive picture of %d pixels was decoded", side*side)
	}
}

// progressiveColor returns a progressive JPEG of several components, without contents.
func progressiveColor(side, components int) []byte {
	var b bytes.Buffer
	segment := func(marker byte, data ...byte) {
		b.Write([]byte{0xff, marker})
		_ = binary.Write(&b, binary.BigEndian, uint16(len(data)+2))
		b.Write(data)
	}
	b.Write([]byte{0xff, 0xd8})
	segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	frame, scan := []byte{8, byte(side >> 8), byte(side), byte(side >> 8), byte(side), byte(components)}, []byte{byte(components)}
	for i := range components {
		frame, scan = append(frame, byte(i+1), 0x11, 0), append(scan, byte(i+1), 0)
	}
	segment(startOfProgressive, frame...)
	segment(0xc4, append([]byte{0, 1}, make([]byte, 16)...)...) // the code 0: no difference
	segment(startOfScan, append(scan, 0, 0, 0)...)
	blocks := (side + 7) / 8 * ((side + 7) / 8) * components
	b.Write(make([]byte, blocks/8+8))
	b.Write([]byte{0xff, 0xd9})
	return b.Bytes()
}

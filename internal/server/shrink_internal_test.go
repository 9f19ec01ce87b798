package server

import (
	"image"
	"image/draw"
	"runtime"
	"testing"

	xdraw "golang.org/x/image/draw"
)

// TestShrunkIsThePictureOfBiLinear: this holds for each kind of picture, for numbers of rows that are no multiple of
// scaledRows, and for a picture whose bounds do not begin at 0.
func TestShrunkIsThePictureOfBiLinear(t *testing.T) {
	t.Parallel()
	next := uint32(1)
	random := func() uint8 {
		next = next*1664525 + 1013904223
		return uint8(next >> 24)
	}
	for _, size := range []image.Point{{301, 203}, {190, 64}, {64, 1000}, {1000, 1}, {3, 517}, {129, 129}} {
		whole := image.Rect(0, 0, size.X, size.Y)
		noise := image.NewNRGBA(whole)
		for i := range noise.Pix {
			noise.Pix[i] = random()
		}
		gray, color, deep := image.NewGray(whole), image.NewYCbCr(whole, image.YCbCrSubsampleRatio420), image.NewRGBA64(whole)
		draw.Draw(gray, whole, noise, image.Point{}, draw.Src)
		draw.Draw(deep, whole, noise, image.Point{}, draw.Src)
		for _, plane := range [][]byte{color.Y, color.Cb, color.Cr} {
			for i := range plane {
				plane[i] = random()
			}
		}
		for _, img := range []image.Image{noise, gray, color, deep, noise.SubImage(image.Rect(1, 0, size.X, size.Y))} {
			b := img.Bounds()
			for _, part := range []int{1, 2, 3, 7} {
				columns, rows := max(b.Dx()/part, 1), max(b.Dy()*9/10/part, 1)
				want := image.NewRGBA(image.Rect(0, 0, columns, rows))
				xdraw.BiLinear.Scale(want, want.Rect, img, b, draw.Src, nil)
				got := shrunk(img, columns, rows)
				for i := range want.Pix {
					if d := int(got.Pix[i]) - int(want.Pix[i]); d < -1 || d > 1 {
						t.Fatalf("%T %v to %dx%d: byte %d is %d, want %d", img, b, columns, rows, i, got.Pix[i], want.Pix[i])
					}
				}
			}
		}
	}
}

// TestFitHoldsLittleBesideThePicture: scaling does not hold a copy of all rows of the picture.
func TestFitHoldsLittleBesideThePicture(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	img := image.NewGray(image.Rect(0, 0, 4001, 9990)) // 40 MB
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fit(img, scaledSide)
	runtime.ReadMemStats(&after)
	const most = 100 << 20 // all that was allocated, of which 26 MB are held at once
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("got %d bytes allocated, want at most %d", got, most)
	}
}

package server

import (
	"image"
	"image/draw"
	"math"

	xdraw "golang.org/x/image/draw"
)

// shrunk returns img with fewer columns and rows. Except for rounding, the result is that of [xdraw.BiLinear]. xdraw first
// reduces the columns of all rows, and holds them with 32 bytes for each pixel. shrunk does so for [scaledRows] rows at a
// time.
func shrunk(img image.Image, columns, rows int) *image.RGBA {
	from := img.Bounds()
	small := image.NewRGBA(image.Rect(0, 0, columns, rows))
	band := image.NewRGBA64(image.Rect(0, 0, columns, min(scaledRows, from.Dy())))
	narrow := xdraw.BiLinear.NewScaler(columns, band.Rect.Dy(), from.Dx(), band.Rect.Dy())
	all := weightsOf(rows, from.Dy())
	sums := map[int][]float64{} // weighted sums of rows of img, for rows of small that are not complete
	next := 0                   // the first row of small that is not complete
	for y := range from.Dy() {
		if y%scaledRows == 0 {
			part := image.Rect(from.Min.X, from.Min.Y+y, from.Max.X, min(from.Min.Y+y+scaledRows, from.Max.Y))
			narrow.Scale(band, image.Rect(0, 0, columns, part.Dy()), img, part, draw.Src, nil)
		}
		line := band.Pix[y%scaledRows*band.Stride:][:8*columns]
		for row := next; row < rows && all[row].first <= y; row++ {
			if sums[row] == nil {
				sums[row] = make([]float64, 4*columns)
			}
			weight := all[row].of(y)
			for i, sum := range sums[row] {
				sums[row][i] = sum + weight*float64(uint(line[2*i])<<8|uint(line[2*i+1]))
			}
		}
		for ; next < rows && all[next].last <= y; next++ {
			for i, sum := range sums[next] {
				small.Pix[next*small.Stride+i] = uint8(uint(sum+0.5) >> 8)
			}
			delete(sums, next)
		}
	}
	return small
}

// weights has the weights of the rows of a picture in one row of a smaller one.
type weights struct {
	first, last   int // the rows whose weight is not 0
	center, scale float64
	total         float64
}

// weightsOf returns the weights for each of the rows of a small picture. The large picture has of rows.
func weightsOf(rows, of int) []weights {
	all := make([]weights, rows)
	for i := range all {
		w := weights{scale: float64(of) / float64(rows), total: 1}
		w.center = (float64(i)+0.5)*w.scale - 0.5
		w.first = max(int(math.Floor(w.center-w.scale))+1, 0)
		w.last = min(int(math.Ceil(w.center+w.scale))-1, of-1)
		sum := 0.0
		for y := w.first; y <= w.last; y++ {
			sum += w.of(y)
		}
		w.total = sum
		all[i] = w
	}
	return all
}

// of returns the weight of row y of the large picture.
func (w weights) of(y int) float64 { return (1 - math.Abs(w.center-float64(y))/w.scale) / w.total }

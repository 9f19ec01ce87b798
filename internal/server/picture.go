package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/image/webp"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	maxPictures     = 4
	maxPictureBytes = 1 << 20
	maxPictureSide  = 8_000      // pixels; hosts refuse a conversation with a larger picture
	scaledSide      = 2_000      // pixels of the longer side after scaling down
	maxPixels       = 40_000_000 // most pixels of a picture that is decoded, 160 MB; fewer if a pixel takes more bytes, see weight. Scaling takes some 40 MB more
	maxDecoded      = 48_000_000 // most pixels that are decoded for an answer, about 2 s of CPU time
	maxDecodedSide  = 65_535     // most pixels of the longer side of a picture that is decoded: scaling holds 64 bytes for each
	scaledRows      = 64         // rows of a picture that are scaled at a time
	maxSource       = 32 << 20   // most bytes of a picture file
	maxScans        = 64         // of a JPEG: for each the decoder visits the whole picture
)

// Markers of a JPEG, behind the byte 0xff.
const (
	startOfScan        = 0xda
	startOfProgressive = 0xc2 // of a picture whose samples are kept until all scans are read
)

// codec decodes one kind of picture.
type codec struct {
	config func([]byte) (image.Config, error)
	decode func([]byte) (image.Image, error)
}

// codecFor returns the codec of a MIME type. It does not use the registry of package image,
// because any imported package may add formats to that.
func codecFor(mime string) (codec, bool) {
	switch mime {
	case "image/png":
		return codec{
			func(b []byte) (image.Config, error) { return png.DecodeConfig(bytes.NewReader(b)) },
			func(b []byte) (image.Image, error) { return png.Decode(bytes.NewReader(b)) },
		}, true
	case "image/jpeg":
		return codec{
			func(b []byte) (image.Config, error) { return jpeg.DecodeConfig(bytes.NewReader(b)) },
			func(b []byte) (image.Image, error) { return jpeg.Decode(bytes.NewReader(b)) },
		}, true
	case "image/gif": // its first frame
		return codec{
			func(b []byte) (image.Config, error) { return gif.DecodeConfig(bytes.NewReader(b)) },
			func(b []byte) (image.Image, error) { return gif.Decode(bytes.NewReader(b)) },
		}, true
	case "image/webp":
		return codec{
			func(b []byte) (image.Config, error) { return webp.DecodeConfig(bytes.NewReader(b)) },
			func(b []byte) (image.Image, error) { return webp.Decode(bytes.NewReader(b)) },
		}, true
	}
	return codec{}, false
}

// pictures returns the image blocks of a result, first of rich results and then of files, and
// how many pictures were too many. A picture that is both is shown once. It leaves out
// pictures that cannot be shown; their files are still linked. shown has the indexes of the
// rich results whose picture is in a block.
func (s *Server) pictures(ctx context.Context, who sandboxmcp.Caller, r sandboxmcp.Result) (blocks []mcp.Content, more int, shown map[int]bool) {
	seen, left := map[[sha256.Size]byte]bool{}, maxDecoded // seen says of each picture whether it is shown
	add := func(mime string, data []byte) bool {
		sum := sha256.Sum256(data)
		if is, known := seen[sum]; known {
			return is
		}
		seen[sum] = false
		if len(blocks) == maxPictures {
			more++
		} else if p := s.picture(ctx, mime, data, &left); p != nil {
			blocks = append(blocks, p)
			seen[sum] = true
		}
		return seen[sum]
	}
	shown = map[int]bool{}
	for i, bundle := range r.Results {
		for _, mime := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
			text, ok := bundle[mime].(string)
			if !ok {
				continue
			}
			if data, err := base64.StdEncoding.DecodeString(text); err == nil {
				shown[i] = add(mime, data)
				break // the other forms show the same picture
			}
		}
	}
	for _, a := range r.Artifacts {
		if _, ok := codecFor(bareType(a.MIMEType)); !ok || a.SizeBytes > maxSource {
			continue
		}
		if len(blocks) == maxPictures { // its content is not read any more
			sum, err := hex.DecodeString(a.SHA256)
			known := err == nil && len(sum) == sha256.Size
			if known {
				_, known = seen[[sha256.Size]byte(sum)]
			}
			if !known {
				more++
			}
			continue
		}
		data := a.ContentB64
		if len(data) == 0 {
			whole, err := s.engine.ArtifactContent(ctx, who, r.RequestID, a.Name)
			if err != nil {
				continue
			}
			data = whole.ContentB64
		}
		add(bareType(a.MIMEType), data)
	}
	return blocks, more, shown
}

// leftOut says how many pictures of a run an answer does not show, and where they are.
func leftOut(n int, id sandboxmcp.RequestID) string {
	return fmt.Sprintf("%d more pictures are not shown: files by their uri, shown values in %s.", n, runURI(id, "result"))
}

// picture returns data as an image block, scaled down if it is too large. It returns nil if
// data is not a picture of that type or has too many pixels. left is how many pixels may
// still be decoded for the answer. The bytes come from the sandbox, so it recovers from a
// panic of the decoder.
func (s *Server) picture(ctx context.Context, mime string, data []byte, left *int) (block *mcp.ImageContent) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Warn("picture could not be decoded", "mime", mime, "panic", p)
			block = nil
		}
	}()
	c, ok := codecFor(mime)
	if !ok {
		return nil
	}
	config, err := c.config(data)
	if err != nil || config.Width <= 0 || config.Height <= 0 {
		return nil
	}
	if len(data) <= maxPictureBytes && max(config.Width, config.Height) <= maxPictureSide {
		return &mcp.ImageContent{Data: data, MIMEType: mime}
	}
	if config.Width > maxPixels/config.Height || max(config.Width, config.Height) > maxDecodedSide {
		return nil
	}
	pixels := config.Width * config.Height * weight(mime, data, config.ColorModel)
	if pixels > min(*left, maxPixels) {
		return nil
	}
	if mime == "image/jpeg" && bytes.Count(data, []byte{0xff, startOfScan}) > maxScans {
		return nil
	}
	*left -= pixels
	select {
	case s.decoding <- struct{}{}:
		defer func() { <-s.decoding }()
	case <-ctx.Done():
		return nil
	}
	img, err := c.decode(data)
	if err != nil {
		return nil
	}
	return scaled(img, mime == "image/jpeg")
}

// weight returns how many times 4 bytes the decoder holds for each pixel. It may be too high.
func weight(mime string, data []byte, model color.Model) int {
	n := 1
	switch model {
	case color.Gray16Model, color.RGBA64Model, color.NRGBA64Model, color.CMYKModel:
		n = 2
	case color.RGBAModel: // of a JPEG it is a copy
		if mime == "image/jpeg" {
			n = 2
		}
	}
	const interlace = 28 // offset of a byte of a PNG
	switch {
	case mime == "image/jpeg" && bytes.Contains(data, []byte{0xff, startOfProgressive}): // 4 bytes for each sample
		switch model {
		case color.GrayModel:
			n++
		case color.CMYKModel:
			n += 4
		default:
			n += 3
		}
	case mime == "image/png" && len(data) > interlace && data[interlace] != 0: // a second picture for each pass
		n *= 2
	case mime == "image/webp": // tables of codes, or a picture for the transparency
		n = 2
	}
	return n
}

// scaled scales img down until its encoding is small enough: first as PNG, which keeps the
// lines of a chart sharp, then as JPEG.
func scaled(img image.Image, photo bool) *mcp.ImageContent {
	for side := scaledSide; side >= scaledSide/8; side /= 2 {
		small := fit(img, side)
		var b bytes.Buffer
		if !photo && png.Encode(&b, small) == nil && b.Len() <= maxPictureBytes {
			return &mcp.ImageContent{Data: b.Bytes(), MIMEType: "image/png"}
		}
		b.Reset()
		if jpeg.Encode(&b, onWhite(small), &jpeg.Options{Quality: 85}) == nil && b.Len() <= maxPictureBytes {
			return &mcp.ImageContent{Data: b.Bytes(), MIMEType: "image/jpeg"}
		}
	}
	return nil
}

// fit returns img with its longer side at most side pixels.
func fit(img image.Image, side int) image.Image {
	b := img.Bounds()
	long := max(b.Dx(), b.Dy())
	if long <= side {
		return img
	}
	return shrunk(img, max(b.Dx()*side/long, 1), max(b.Dy()*side/long, 1))
}

// onWhite returns img on a white background, because JPEG would make transparency black.
func onWhite(img image.Image) image.Image {
	flat := image.NewRGBA(img.Bounds())
	draw.Draw(flat, flat.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(flat, flat.Bounds(), img, img.Bounds().Min, draw.Over)
	return flat
}

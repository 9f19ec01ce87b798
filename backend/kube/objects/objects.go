// Package objects keeps bytes under names in a bucket of an S3-compatible store, which several
// machines share.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sandboxmcp/sandboxmcp"
)

// attempts is how often a request is sent before its error is returned.
const attempts = 3

// singlePut is the size up to which an object is sent as one request. The limit of S3 is 5 GiB.
const singlePut = 1 << 30

// Bucket is a bucket, or the names below a prefix in it. Its methods may be called concurrently.
type Bucket struct {
	client *minio.Client
	where  Place
}

// Place is a bucket's address.
type Place struct {
	Bucket   string
	Prefix   string // without slashes at its ends; empty: the whole bucket
	Region   string // empty: the store is asked
	Host     string // host and port
	Insecure bool   // HTTP without TLS
}

// Parse reads s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION. Without an endpoint it is
// that of AWS. A URL with a user, a password or another parameter is refused.
func Parse(text string) (Place, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Place{}, errors.New("it is not a URL") // the error of url.Parse would repeat the text
	}
	switch {
	case u.Scheme != "s3" || u.Host == "" || u.Port() != "":
		return Place{}, errors.New("it has to begin with s3:// and a bucket")
	case u.User != nil:
		return Place{}, errors.New("the key and its secret are read from the environment, not from the URL")
	case u.Fragment != "":
		return Place{}, errors.New("it has a part behind #")
	}
	p := Place{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Host: "s3.amazonaws.com"}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Place{}, errors.New("its parameters cannot be read")
	}
	for key, values := range query {
		switch {
		case len(values) != 1:
			return Place{}, fmt.Errorf("%q is there twice", key)
		case key == "region":
			p.Region = values[0]
		case key == "endpoint":
			if p.Host, p.Insecure, err = endpoint(values[0]); err != nil {
				return Place{}, err
			}
		default:
			return Place{}, fmt.Errorf("it has no parameter %q; endpoint and region are known", key)
		}
	}
	return p, nil
}

func endpoint(text string) (host string, insecure bool, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return "", false, errors.New("endpoint has to be of the form https://host:port")
	}
	return u.Host, u.Scheme == "http", nil
}

// Open returns the bucket that a setting blob_url names.
func Open(text string) (sandboxmcp.Objects, error) {
	where, err := Parse(text)
	var b *Bucket
	if err == nil {
		b, err = New(where)
	}
	if err != nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "blob_url cannot be used: %v", err).WithHint("a URL has the form s3://bucket/prefix?endpoint=https://host:port&region=name")
	}
	return b, nil
}

// New returns a bucket. It connects when a method is called. The key and its secret are those of
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of the file that AWS_SHARED_CREDENTIALS_FILE names, or of
// the role of the machine or pod, in this order.
func New(where Place) (*Bucket, error) {
	creds := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
	lookup := minio.BucketLookupPath
	if strings.HasSuffix(where.Host, ".amazonaws.com") {
		lookup = minio.BucketLookupAuto
	}
	client, err := minio.New(where.Host, &minio.Options{
		Creds: creds, Secure: !where.Insecure, Region: where.Region, BucketLookup: lookup, MaxRetries: attempts, Transport: transport(),
	})
	if err != nil {
		return nil, err
	}
	return &Bucket{client, where}, nil
}

// transport gives up on a store that does not answer.
func transport() http.RoundTripper {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   16,
		DisableCompression:    true, // objects are delivered as they were put
		ForceAttemptHTTP2:     true,
	}
}

// Name returns the bucket's address for messages.
func (b *Bucket) Name() string {
	if b.where.Prefix == "" {
		return b.where.Bucket + " at " + b.where.Host
	}
	return b.where.Bucket + "/" + b.where.Prefix + " at " + b.where.Host
}

func (b *Bucket) key(name string) string {
	if b.where.Prefix == "" {
		return name
	}
	return b.where.Prefix + "/" + name
}

// Put stores the bytes of r, of which there are size, and replaces an object of that name. Reading
// starts again if a request is repeated.
func (b *Bucket) Put(ctx context.Context, name string, r io.ReadSeeker, size int64) error {
	_, err := b.client.PutObject(ctx, b.where.Bucket, b.key(name), r, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true, DisableMultipart: size <= singlePut,
	})
	return b.explain(err)
}

// Get opens an object for reading. The caller closes it. If the bucket has no object of that name, Get
// fails with [fs.ErrNotExist].
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	core := minio.Core{Client: b.client}
	r, _, _, err := core.GetObject(ctx, b.where.Bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.explain(err)
	}
	return r, nil
}

// explain returns [fs.ErrNotExist] for a missing object, and otherwise an error that names the bucket.
func (b *Bucket) explain(err error) error {
	if err == nil {
		return nil
	}
	switch code := minio.ToErrorResponse(err); {
	case code.Code == minio.NoSuchKey:
		return fs.ErrNotExist
	case code.Code != "":
		return fmt.Errorf("object store %s: %s: %s", b.Name(), code.Code, code.Message)
	default:
		return fmt.Errorf("object store %s: %w", b.Name(), err)
	}
}

package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	fetchTime   = 5 * time.Second
	maxDocument = 1 << 20          // bytes of a key set or of metadata
	keepKeys    = time.Hour        // age at which the key set is fetched again
	trustKeys   = 24 * time.Hour   // age from which keys are not believed, also if the issuer cannot be asked for newer ones
	retryKeys   = 30 * time.Second // shortest interval of fetches, also after failures
)

// keySet is the key set of an issuer as last fetched.
type keySet struct {
	client *http.Client
	issuer string
	url    string // empty: as the issuer's metadata says
	now    func() time.Time

	mu       sync.Mutex // guards the fields below; not held during a fetch
	all      []jose.JSONWebKey
	got      time.Time // of all
	tried    time.Time
	failed   error         // of the last fetch
	fetching chan struct{} // closed when the fetch in progress has ended; nil: there is none
}

// find returns the keys with an id; without an id, all. An unknown id makes it fetch the key
// set again, because issuers replace their keys. Tokens with a known key do not wait for that. While
// the issuer is down, its known keys are valid for one more day and not longer, because the thief of a
// key could block the server's requests and so hide that the issuer has withdrawn the key.
func (s *keySet) find(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	s.mu.Lock()
	now := s.now()
	found := s.withIDLocked(id)
	if len(found) > 0 && now.Sub(s.got) < keepKeys {
		s.mu.Unlock()
		return found, nil
	}
	if s.fetching == nil && (s.tried.IsZero() || now.Sub(s.tried) >= retryKeys) {
		s.tried, s.fetching = now, make(chan struct{})
		go s.update(context.WithoutCancel(ctx), now) // a caller that disconnects does not keep others from the keys
	}
	if len(found) > 0 && s.failed != nil && now.Sub(s.got) < trustKeys { // the issuer was down a while ago, and the next fetch may find it so
		s.mu.Unlock()
		return found, nil
	}
	if wait := s.fetching; wait != nil {
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if found = s.withIDLocked(id); len(found) > 0 && now.Sub(s.got) < trustKeys {
		return found, nil
	}
	if s.failed != nil {
		return nil, fmt.Errorf("the keys of the issuer cannot be fetched: %w", s.failed)
	}
	return nil, errors.New("the issuer has no such key")
}

// update fetches the key set. If it fails, the former keys stay.
func (s *keySet) update(ctx context.Context, now time.Time) {
	all, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed = err; err == nil {
		s.all, s.got = all, now
	}
	close(s.fetching)
	s.fetching = nil
}

func (s *keySet) withIDLocked(id string) []jose.JSONWebKey {
	var found []jose.JSONWebKey
	for _, k := range s.all {
		if id == "" || k.KeyID == id {
			found = append(found, k)
		}
	}
	return found
}

// fetch fetches the public keys for signatures. It reads the metadata each time, because an issuer may move its key set and
// leave withdrawn keys at the former place.
func (s *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	at := s.url
	if at == "" {
		var err error
		if at, err = s.discover(ctx); err != nil {
			return nil, err
		}
	}
	var set struct{ Keys []json.RawMessage }
	if err := s.get(ctx, at, &set); err != nil {
		return nil, err
	}
	var all []jose.JSONWebKey
	for _, text := range set.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(text, &k) != nil {
			continue // a key that is not understood does not keep the others from being used
		}
		if k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the key set has no public key for signatures")
	}
	return all, nil
}

// discover returns the URL of the key set from the issuer's metadata.
func (s *keySet) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(s.issuer)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	var failed error
	for _, p := range []string{"/.well-known/oauth-authorization-server" + path, path + "/.well-known/openid-configuration"} {
		at := *u
		at.Path = p
		var doc struct {
			Issuer  string `json:"issuer"`
			KeysURL string `json:"jwks_uri"`
		}
		err := s.get(ctx, at.String(), &doc)
		switch {
		case err != nil:
		case doc.Issuer != s.issuer:
			err = errors.New("the metadata is that of another issuer")
		case CheckIssuer(doc.KeysURL) != nil:
			err = errors.New("the metadata has no usable jwks_uri")
		default:
			return doc.KeysURL, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", failed
}

func (s *keySet) get(ctx context.Context, at string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", at, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

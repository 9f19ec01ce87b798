package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// firstSignals is the schema version from which on topics have rows. Releases before it
// had two files of other formats in place of the files of a [Watch].
const firstSignals = 10

// moveSignals gives the files of older releases the names of today. The migration, which
// follows, adds the rows. A file is never missing where a row is there, so a process that
// dies in between leaves a topic that is read too often and not too seldom.
func (d database) moveSignals(dir string) error {
	for from, topic := range map[string]string{filepath.Join(dir, "gate"): "gate", d.path + "-limits": "limits"} {
		to := signalFile(d.real, topic)
		if from == to {
			continue
		}
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// alignSignals makes the files of topics that have none, although they were changed: a
// database was restored without them. If all is set, it makes the rows and files of all
// topics say the same: an older release has used the database.
func (s *Store) alignSignals(ctx context.Context, all bool) error {
	topics, err := s.topics(ctx)
	if err != nil {
		return fmt.Errorf("read the topics: %w", err)
	}
	for _, topic := range topics {
		w := s.Watch(topic)
		if size, err := w.announced(); !all && (err != nil || size > 0) {
			continue // what cannot be read fails where it is needed
		}
		if err := w.Update(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) topics(ctx context.Context) (topics []string, err error) {
	rows, err := s.conn.QueryContext(ctx, selectTopics)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var topic string
		if err := rows.Scan(&topic); err != nil {
			return nil, err
		}
		topics = append(topics, topic)
	}
	return topics, rows.Err()
}

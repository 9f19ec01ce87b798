package api

import (
	"encoding/json"
	"reflect"
)

// withoutNulls returns a copy of v in which empty lists and maps are not nil, so that they are [] and {}
// in JSON, and never null. It looks into structs, lists and pointers.
func withoutNulls(v any) any {
	in := reflect.ValueOf(v)
	if !in.IsValid() {
		return v
	}
	out := reflect.New(in.Type()).Elem()
	out.Set(in)
	fillNulls(out)
	return out.Interface()
}

// fillNulls changes an addressable value, but nothing that it shares with others.
func fillNulls(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			fillNulls(own.Elem())
			v.Set(own)
		}
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // bytes are never changed
			if v.IsNil() && v.Type() != reflect.TypeFor[json.RawMessage]() {
				v.SetBytes([]byte{})
			}
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		for i := range own.Len() {
			fillNulls(own.Index(i))
		}
		v.Set(own)
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.CanSet() {
				fillNulls(f)
			}
		}
	default:
	}
}

// The functions of the module _hotbed: thin, with positional arguments; hotbed/client.py and
// hotbed/torch/ are what people call, and document them.
#ifndef HOTBED_PYTHON_BINDING_CALLS_H_
#define HOTBED_PYTHON_BINDING_CALLS_H_

#include "python/binding/python_api.h"

namespace hotbed::python {

// Null-terminated.
extern PyMethodDef client_methods[];       // client_calls.cc
extern PyMethodDef embedding_methods[];    // embedding_calls.cc
extern PyMethodDef whole_table_methods[];  // whole_table_calls.cc
extern PyMethodDef serving_methods[];      // serving_calls.cc
extern PyMethodDef output_methods[];       // output_calls.cc
extern PyMethodDef vocabulary_methods[];   // vocabulary_calls.cc

}  // namespace hotbed::python

#endif  // HOTBED_PYTHON_BINDING_CALLS_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/binding/binding.h"

namespace shoal::python {

namespace {

// Raises the exception that shoal._errors has for the code.
void raise_status(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const StatusError& error) {
    const Status& status = error.status();
    try {
      const nb::object raised =
          nb::module_::import_("shoal._errors")
              .attr("error_of")(std::string(code_name(status.code())), status.message());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    } catch (nb::python_error& interrupted) {  // a signal has come meanwhile
      interrupted.restore();
    }
  }
}

}  // namespace

NB_MODULE(_client, module) {
  module.doc() = "The C++ client of Shoal. Use the package shoal, which this module serves.";
  // At exit the interpreter may still hold handles of this module; that is no defect.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(raise_status);
  bind_geometry(module);
  bind_state(module);
  bind_results(module);
  bind_options(module);
  bind_checkpointer(module);
}

}  // namespace shoal::python
